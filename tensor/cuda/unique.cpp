// unique and unique_consecutive by hand-written kernels (kernels/unique.cuh). The host waits for the number of values.
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/unique_arguments.cuh"
#include "tensor/cuda/scan.h"
#include "tensor/cuda/sort.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

template <bool kSorts>
void unique(const KernelArgs& a) {
  const View& x = a.in[0];
  Stream& stream = stream_at(a.stream);
  const bool slices = a.has_attr("dim");
  const int dim = slices ? a.dim("dim", x.rank()) : 0;
  const Lines lines(slices && x.rank() ? x.shape() : Dims{x.numel()}, dim);
  // Slices without elements are equal, and none is visited.
  const bool empty = x.numel() == 0;
  const int64_t n = empty ? 0 : lines.n, base = a.attr<int64_t>("index_base");

  const Scratch order(stream, size_t(kSorts ? n : 0) * 8), starts(stream, size_t(n)), firsts(stream, size_t(n) * 8);
  kernels::UniqueArgs args = {};
  args.x = x.data;
  args.order = kSorts ? static_cast<const int64_t*>(order.data()) : nullptr;
  args.starts = static_cast<bool*>(starts.data());
  args.firsts = static_cast<int64_t*>(firsts.data());
  args.outer = lines.outer, args.n = n, args.inner = lines.inner, args.base = base;
  const auto run = [&](const char* name, DType rank, int64_t count) {
    if (count > 0) launch(stream, family_kernel(stream, "unique", unique_types(x.dtype(), rank), name), count, &args);
  };

  if (kSorts && lines.count() == 1)
    sort_lines(stream, x.data, x.dtype(), lines, false, n, 0, {nullptr, order.data()});
  else if (kSorts && !empty)
    sort_slices(stream, x.data, x.dtype(), lines, order.data());
  const DType rank = n <= INT32_MAX ? DType::kInt32 : DType::kInt64;
  run("unique_starts", rank, n);
  const Ranks ranks(stream, starts.data(), n);
  args.ranks = ranks.data();
  args.count = empty ? std::min<int64_t>(lines.n, 1) : ranks.total();

  Dims shape = slices && x.rank() ? x.shape() : Dims{args.count};
  shape[dim] = args.count;
  const View values = a.allocate(0, shape);
  args.values = values.data;
  int next = 1;
  if (a.attr<bool>("return_inverse")) {
    const View inverse = a.allocate(next++, slices ? Dims{lines.n} : x.shape());
    args.inverse = inverse.as<int64_t>();
    if (empty && inverse.numel() > 0) fill_view(stream, inverse, double(base));
  }
  run("unique_groups", rank, n);
  run("unique_values", rank, values.numel());
  if (!a.attr<bool>("return_counts")) return;
  const View counts = a.allocate(next, {args.count});
  args.counts = counts.as<int64_t>();
  if (empty)
    fill_view(stream, counts, double(lines.n));
  else
    run("unique_counts", rank, args.count);
}

}  // namespace

std::string unique_types(DType t, DType rank) {
  return fmt::format("using T = {};\nusing R = {};\n", type_text(t), type_text(rank));
}

std::vector<KernelRow> unique_rows() { return {{"unique", unique<true>}, {"unique_consecutive", unique<false>}}; }

}  // namespace pg::cuda
