#include "graph/plan/fused.h"

#include <algorithm>

#include "tensor/device_table.h"

namespace pg {
namespace {

void check(const DivisorCheck& c, std::span<const View> in) {
  if (c.input >= 0) return tile_check(*c.op, in[size_t(c.input)]);
  const Dims strides = contiguous_strides(c.type.shape);
  const auto buffer = Buffer::allocate(Device{}, bytes_of(c.type));
  const View view{&c.type, &strides, buffer->data};
  c.kernel->run(in, {&view, 1});
  tile_check(*c.op, view);
}

}  // namespace

bool fusable(const Node& node) {
  if (node.kind != NodeKind::kOp || node.types.size() != 1 || !fuses(node.types[0].device)) return false;
  if (is_alias(node) || node.is<"to">()) return true;
  if (!node.op->has(kPointwise)) return false;
  const bool boolean = node.op->result == Result::kBool;  // the result is bool for operands of any dtype
  return tile_computes(*node.op, boolean ? DType::kFloat32 : work_dtype(node.types[0].dtype));
}

bool fusable_reduction(const Node& node, const Type& reduced) {
  if (node.kind != NodeKind::kOp || node.types.size() != 1 || !fuses(reduced.device)) return false;
  return tile_reduces(*node.op) && reduced_row(node, reduced) >= 0;
}

bool fusable_join(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::kOp || !is_join(node) || node.inputs.size() < 2) return false;
  const Type& first = graph.type(node.inputs[0]);
  const auto alike = [&](const Operand& o) { return o.is_node() && graph.type(o) == first; };
  return numel(first.shape) > 1 && first.dtype == node.types[0].dtype && writes_strided(first.device) &&
         std::all_of(node.inputs.begin(), node.inputs.end(), alike);
}

bool shares_body(const Node& reduction, const Type& reduced, int64_t row) {
  constexpr int64_t kLong = 2048;
  const bool sums =
      reduction.is<"sum">() || reduction.is<"sum_to">() || reduction.is<"mean">() || reduction.is<"sum_squares">();
  return sums && reduced.dtype == DType::kFloat32 && row > kLong && host_reads(reduced.device);
}

std::shared_ptr<const FusedKernel> FusedKernel::compile(const Graph& body, Device device) {
  TranslatedBody translated = translate_body(body);
  if (!translated.checks.empty() && !host_reads(device)) return nullptr;
  auto tiles = device_table(device).compile(device.index, translated.tiles);
  if (!tiles) return nullptr;
  return std::make_shared<FusedKernel>(std::move(translated), std::move(tiles));
}

FusedKernel::FusedKernel(TranslatedBody body, std::shared_ptr<const TileKernel> tiles)
    : constants_(std::move(body.constants)),
      order_(std::move(body.outputs)),
      parts_(std::move(body.parts)),
      checks_(std::move(body.checks)),
      tiles_(std::move(tiles)) {
  for (size_t i = 0; i < order_.size(); ++i) ordered_ &= order_[i] == int32_t(i);
}

void FusedKernel::run(std::span<const View> in, std::span<const View> out, void* stream) const {
  for (const DivisorCheck& c : checks_) check(c, in);
  if (constants_.empty() && ordered_) return tiles_->run(in, out, stream);
  const auto [all, sorted] = views(in, out);
  tiles_->run(all, sorted, stream);
}

int64_t FusedKernel::iterate(const Recurrence& given, std::span<const View> in, std::span<const View> out,
                             int64_t most) const {
  if (!checks_.empty()) return -1;
  const auto sorted_place = [&](int32_t output) {
    return int32_t(std::find(order_.begin(), order_.end(), output) - order_.begin());
  };
  Recurrence r = given;
  for (Recurrence::Carry& c : r.carries) c.out = sorted_place(c.out);
  if (r.flag >= 0) r.flag = sorted_place(r.flag);
  const auto [all, sorted] = views(in, out);
  return tiles_->iterate(r, all, sorted, most);
}

// The views as the compiled body takes them.
std::pair<SmallVector<View, 16>, SmallVector<View, 8>> FusedKernel::views(std::span<const View> in,
                                                                          std::span<const View> out) const {
  SmallVector<View, 16> all(in);
  SmallVector<View, 8> sorted;
  for (const Value& v : constants_) all.push_back({&v.array().type, &v.array().strides, v.array().data()});
  for (size_t i = 0; i < order_.size(); ++i) {
    const View& whole = out[size_t(order_[i])];
    sorted.push_back(whole);
    if (const auto& part = parts_[i])
      sorted.back() = {&part->type, &part->strides, static_cast<char*>(whole.data) + part->offset};
  }
  return {std::move(all), std::move(sorted)};
}

}  // namespace pg
