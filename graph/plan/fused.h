// FusedKernel: the body of a kFused node as one kernel. A body is a Graph of pointwise ops over inputs that broadcast
// to one index space. It has any number of outputs, and reductions at its end.
#pragma once
#include <memory>
#include <span>

#include "graph/ir/ir.h"
#include "graph/plan/fused_body.h"
#include "tensor/kernel.h"
#include "tensor/tile.h"

namespace pg {

// Whether a body may contain the node of a specialized graph, on a device that fuses. That is a pointwise op, `to`
// another dtype, or `broadcast_to` and `detach`, which cost nothing in a body.
bool fusable(const Node& node);

// Whether the node may be a reduction at the end of a body, given the type of its operand: sum, mean, prod, amax,
// amin, sum_squares, count_nonzero, any, all and sum_to over trailing dims.
bool fusable_reduction(const Node& node, const Type& reduced);

// Whether the node may join values of a body at its end, all of one type: the kernel writes each into its part of the
// result.
bool fusable_join(const Graph& graph, const Node& node);

// How many reductions a body may have.
inline constexpr size_t kMaxReductions = 4;

// Whether a fusable_reduction may share a body with others, given the type of its operand and the number of elements
// per total: on the CPU, long sums of float32, which cost no pass over the elements.
bool shares_body(const Node& reduction, const Type& reduced, int64_t row);

// Larger bodies do not pay, because registers and streams no longer fit in the first-level cache. A body whose tensors
// all have one element costs a nanosecond per step and a few per output: it may have 8 times as many of each.
inline constexpr int kMaxFusedInputs = 24;
inline constexpr int kMaxFusedOutputs = 16;
inline constexpr int kMaxFusedSteps = 256;  // nodes that are neither inputs nor constants

// An immutable kernel. Several threads may call `run` at once.
//
// Requirements on a body, besides verify(body): every kOp node is fusable, or is one of kMaxReductions nodes that are
// fusable_reductions over rows of one length and that no node reads, or is a fusable_join that no node reads. kInput
// nodes have any shape. There may be kConstant nodes and immediates. Every output has the shape of the index space (the
// joint shape of all nodes without the reductions and joins), one element, or the shape of a reduction or join. An
// intermediate node may have any shape that broadcasts to the index space.
//
// The results have the same bits as the ops one by one, for any number of threads. Only the sign of a NaN, which
// copysign can show, is unspecified.
class FusedKernel {
 public:
  // Throws Error "fused: …" for a body that breaks the rules above. Returns null for a body that the device does not
  // compile, or that needs checks of memory that the host cannot read.
  static std::shared_ptr<const FusedKernel> compile(const Graph& body, Device device = {});
  FusedKernel(TranslatedBody body, std::shared_ptr<const TileKernel> tiles);

  // `in` has the types the body was compiled for, with any strides. `out` is contiguous. An output may use the memory
  // of an input with the same shape and element size, element for element, but must not overlap any other input. If run
  // throws Error (an integer division by zero), nothing has been written. `stream` is for devices other than the CPU.
  void run(std::span<const View> in, std::span<const View> out, void* stream = nullptr) const;
  // See TileKernel::iterate. Throws nothing.
  int64_t iterate(const Recurrence& given, std::span<const View> in, std::span<const View> out, int64_t most) const;
  // Whether runs may go to TileKernel::run_all, as calls.
  bool batches() const { return constants_.empty() && ordered_ && checks_.empty() && tiles_->batches(); }
  TileCall call(std::span<const View> in, std::span<const View> out) const { return {tiles_.get(), in, out}; }

 private:
  std::pair<SmallVector<View, 16>, SmallVector<View, 8>> views(std::span<const View> in,
                                                               std::span<const View> out) const;

  std::vector<Value> constants_;
  std::vector<int32_t> order_;
  std::vector<std::optional<JoinedPart>> parts_;
  std::vector<DivisorCheck> checks_;
  std::shared_ptr<const TileKernel> tiles_;
  bool ordered_ = true;
};

}  // namespace pg
