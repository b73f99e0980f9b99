#include "graph/exec/residuals.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "graph/plan/arena.h"

namespace pg {
namespace {

// Residuals of fewer bytes together are separate arrays.
constexpr Bytes kLargeResiduals = Bytes(1 << 20);

}  // namespace

ValueBlock place_residuals(const Graph& forward, size_t first) {
  ValueBlock block;
  const auto& outputs = forward.outputs;
  std::set<std::pair<int32_t, int32_t>> seen;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool again = !seen.emplace(outputs[k].node, outputs[k].output).second;
    if (k < first || again) continue;
    const NodeKind kind = forward.node(outputs[k]).kind;
    const Type& type = forward.type(outputs[k]);
    const bool made = kind != NodeKind::kInput && kind != NodeKind::kConstant && type.device.is_cpu();
    if (made && bytes_of(type) > Bytes()) block.members.push_back(int32_t(k));
  }
  std::stable_sort(block.members.begin(), block.members.end(),
                   [&](int32_t a, int32_t b) { return outputs[size_t(a)].node < outputs[size_t(b)].node; });
  for (int32_t k : block.members) {
    block.offsets.push_back(block.bytes);
    block.bytes += arena_aligned(bytes_of(forward.type(outputs[size_t(k)])));
  }
  return block.bytes < kLargeResiduals ? ValueBlock() : block;
}

ValueBlock block_left_by(const Plan& plan, size_t outputs, size_t first) {
  ValueBlock block;
  block.bytes = plan.options.left.bytes;
  for (size_t i = 0; i < plan.options.left.members.size(); ++i) {
    const size_t k = size_t(plan.options.left.members[i]);
    if (!plan.storages[size_t(plan.outputs[k].storage)].in_block) continue;
    block.members.push_back(int32_t(k - outputs + first));
    block.offsets.push_back(plan.options.left.offsets[i]);
  }
  return block.members.empty() ? ValueBlock() : block;
}

bool is_block(const ValueBlock& block, std::span<const Value> arguments) {
  const Ref<Buffer>& shared = arguments[size_t(block.members[0])].array().buffer;
  for (size_t i = 0; i < block.members.size(); ++i) {
    const Array& a = arguments[size_t(block.members[i])].array();
    if (a.buffer != shared || a.data() != static_cast<char*>(shared->data) + block.offsets[i].count()) return false;
  }
  return true;
}

void copy_block(Context& ctx, const ValueBlock& block, std::span<Value> arguments) {
  const Ref<Buffer> copy = Buffer::allocate(Device{}, block.bytes);
  for (size_t i = 0; i < block.members.size(); ++i) {
    Value& member = arguments[size_t(block.members[i])];
    member = to_contiguous(ctx, member);
    const Array& from = member.array();
    std::memcpy(static_cast<char*>(copy->data) + block.offsets[i].count(), from.data(), bytes_of(from.type).count());
    Ref<Array> to = Array::make(from.type);
    to->buffer = copy;
    to->offset = int64_t(block.offsets[i].count()) / size_of(from.type.dtype);
    member = Value(std::move(to));
  }
}

}  // namespace pg
