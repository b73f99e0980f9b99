// FusedKernel: the body of a kFused node as one kernel. A body is a Graph of pointwise ops over inputs that broadcast
// to one index space, with any number of outputs and at most one reduction, at its end.
#pragma once
#include <memory>
#include <span>

#include "graph/ir/ir.h"
#include "tensor/kernel.h"

namespace pg {

// Whether a node of a specialized graph on the CPU may stand inside a body: a pointwise op, `to` another dtype, or
// `broadcast_to` and `detach`, which cost nothing there.
bool fusable(const Node& node);

// Whether a node may be the reduction that ends a body, given the type of what it reduces: sum, mean, prod, amax, amin,
// sum_squares, count_nonzero, any, all and sum_to over trailing dims.
bool fusable_reduction(const Node& node, const Type& reduced);

// Where larger bodies stop paying (registers and streams leave the first-level cache). Bodies whose tensors all have
// one element may be larger, 8 times as large in each of these: they cost a nanosecond a step and a few an output.
inline constexpr int kMaxFusedInputs = 24;
inline constexpr int kMaxFusedOutputs = 16;
inline constexpr int kMaxFusedSteps = 256;  // nodes that are neither inputs nor constants

// An immutable kernel; `run` may be called from several threads at once.
//
// What a body must be, besides verify(body): every kOp node fusable, but for one fusable_reduction that no node reads;
// kInput nodes of any shape, kConstant nodes; operands that are immediates; every output either of the index space's
// shape (the joint shape of all nodes, without the reduction), of one element, or the reduction's. A node in between
// may have any shape that broadcasts to the space.
//
// Results are the bits that the ops give one by one, for any number of threads; only the sign of a NaN, which copysign
// can show, is left open.
class FusedKernel {
 public:
  // Throws Error "fused: …" for a body that breaks the rules above.
  static std::shared_ptr<const FusedKernel> compile(const Graph& body);
  virtual ~FusedKernel() = default;

  // `in` as the inputs of the body: the types it was compiled for, any strides. `out` as its outputs: contiguous. An
  // output may be the memory of an input of the same shape and element size, element for element, and of no other.
  // On an Error (an integer division by zero) nothing has been written.
  virtual void run(std::span<const View> in, std::span<const View> out) const = 0;
};

// The seam for a tier that generates code: asked first by compile(); answers null for a body that it leaves to the
// vector machine. The kernels it makes keep the contract of FusedKernel. Returns the one that was set before; null
// for none. Set at start-up, before any graph is planned.
using FusedCompiler = std::shared_ptr<const FusedKernel> (*)(const Graph& body);
FusedCompiler set_fused_compiler(FusedCompiler compiler);

}  // namespace pg
