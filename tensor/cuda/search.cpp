// Searches and counts by hand-written kernels (kernels/search.cuh, kernels/count.cuh).
#include <algorithm>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/count_arguments.cuh"
#include "tensor/cuda/kernels/search_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

void searchsorted(const KernelArgs& a) {
  const View &sequence = a.in[0], &values = a.in[1], &out = a.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const Converted wanted(stream, values, values.dtype());  // for a number
  kernels::SearchArgs args = {};
  args.sequence = sequence.data;
  args.values = wanted.data();
  args.out = out.as<int64_t>();
  args.count = out.numel();
  args.n = sequence.size(sequence.rank() - 1);
  args.row = sequence.rank() > 1 ? values.size(values.rank() - 1) : 0;
  args.base = a.attr<int64_t>("index_base");
  args.right = a.attr<bool>("right");
  const std::string types = search_types(sequence.dtype(), values.dtype());
  launch(stream, family_kernel(stream, "search", types, "search"), args.count, &args);
}

// Looks at all labels first, as they say how many bins there are.
void bincount(const KernelArgs& a) {
  const View &x = a.in[0], &weights = a.in[1];
  Stream& stream = stream_at(a.stream);
  const Converted factors(stream, weights, DType::kFloat64);
  const Scratch seen(stream, 2 * sizeof(int64_t));
  const Type two{DType::kInt64, x.type->device, {2}}, one{DType::kInt64, x.type->device, {1}};
  const Dims steps = {1};
  fill_view(stream, {&two, &steps, seen.data()}, double(INT64_MIN));
  kernels::CountArgs args = {};
  args.labels = x.data;
  args.weights = weights ? static_cast<const double*>(factors.data()) : nullptr;
  args.seen = static_cast<int64_t*>(seen.data());
  args.count = x.numel();
  args.base = a.attr<int64_t>("index_base");
  args.limit = int64_t(1) << 40;
  const auto run = [&](const char* name) {
    if (args.count > 0) launch(stream, family_kernel(stream, "count", count_types(x.dtype()), name), args.count, &args);
  };
  run("count_range");
  int64_t range[2];
  read_back(stream, range, seen.data(), sizeof range);
  if (range[1] > 0) {
    const int64_t at = args.count - range[1];
    int64_t label = 0;
    const Type element{x.dtype(), x.type->device, {1}};
    convert_view(stream, {&element, &steps, x.as<char>() + at * size_of(x.dtype())}, {&one, &steps, seen.data()});
    read_back(stream, &label, seen.data(), sizeof label);
    bad_argument(a.op.name, "x", label < args.base ? fmt::format("labels from {} on", args.base) : "labels below 2^40",
                 fmt::format("{} at position {}", label, at + 1));
  }
  const int64_t labels = args.count > 0 ? range[0] - args.base + 1 : 0;
  const View out = a.allocate(0, {std::max(a.attr<int64_t>("minlength"), labels)});
  if (out.numel() == 0) return;
  if (!weights) {
    fill_view(stream, out, 0);
    args.bins = out.data;
    return run("count_labels");
  }
  const AtomicSums sums(stream, out);
  args.bins = sums.data();
  run("count_labels");
  sums.finish();
}

}  // namespace

std::string search_types(DType sequence, DType value) {
  return fmt::format("using S = {};\nusing V = {};\n", type_text(sequence), type_text(value));
}
std::string count_types(DType label) { return fmt::format("using L = {};\n", type_text(label)); }

std::vector<KernelRow> search_rows() { return {{"searchsorted", searchsorted}, {"bincount", bincount}}; }

}  // namespace pg::cuda
