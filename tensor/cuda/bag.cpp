// Parts of embedding_bag by hand-written kernels (kernels/bag.cuh). Offsets that are not allowed are reported late.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/bag_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

void bag_numbers(const KernelArgs& a) {
  const View &offsets = a.in[0], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  kernels::BagNumbersArgs args = {};
  args.offsets = offsets.data;
  args.out = out.as<int64_t>();
  args.offset_count = offsets.numel();
  args.bags = args.offset_count - (a.attr<bool>("include_last_offset") ? 1 : 0);
  args.length = out.numel();
  args.base = a.attr<int64_t>("index_base");
  args.fault = stream.fault->get();
  const auto report = [&](std::string expected) {
    Refusal r = refusal(a, "offsets", std::move(expected), "{value} at position {at}");
    r.name = "embedding_bag";
    return report_number(r);
  };
  args.not_first = report(fmt::format("{} first", args.base));
  args.not_in_order = report(fmt::format("offsets in order, up to {}", args.length + args.base));
  args.not_last = report(fmt::format("{} last", args.length + args.base));
  if (args.length > 0 && args.bags <= 0) bad_argument("embedding_bag", "offsets", "a bag for the indices", "none");
  const std::string types = bag_types(DType::kFloat32, offsets.dtype());
  launch(stream, family_kernel(stream, "bag", types, "bag_check"), args.offset_count, &args);
  launch(stream, family_kernel(stream, "bag", types, "bag_numbers"), args.length, &args);
}

void bag_argmax(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const Temporary keys(stream, DType::kInt64, out);
  kernels::BagArgmaxArgs args = {};
  args.x = x.data;
  args.bag = a.in[1].as<int64_t>();
  args.keys = keys.view.as<uint64_t>();
  args.out = out.as<int64_t>();
  args.rows = x.size(0), args.columns = x.size(1), args.bags = out.size(0);
  fill_view(stream, keys.view, 0);
  fill_view(stream, out, -1);
  const std::string types = bag_types(x.dtype(), DType::kInt64);
  launch(stream, family_kernel(stream, "bag", types, "bag_largest"), x.numel(), &args);
  launch(stream, family_kernel(stream, "bag", types, "bag_argmax"), x.numel(), &args);
}

}  // namespace

std::string bag_types(DType t, DType index) { return index_types(t, index); }

std::vector<KernelRow> bag_rows() { return {{"bag_numbers", bag_numbers}, {"bag_argmax", bag_argmax}}; }

}  // namespace pg::cuda
