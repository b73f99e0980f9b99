// FusedKernel: the body of a kFused node as one kernel. A body is a Graph of pointwise ops over inputs that broadcast
// to one index space. It has any number of outputs, and reductions at its end.
#pragma once
#include <memory>
#include <span>

#include "graph/ir/ir.h"
#include "tensor/kernel.h"
#include "tensor/tile.h"

namespace pg {

// Whether a body may contain the node of a specialized graph, on a device that fuses. That is a pointwise op, `to`
// another dtype, or `broadcast_to` and `detach`, which cost nothing in a body.
bool fusable(const Node& node);

// Whether the node may be a reduction at the end of a body, given the type of its operand: sum, mean, prod, amax,
// amin, sum_squares, count_nonzero, any, all and sum_to over trailing dims.
bool fusable_reduction(const Node& node, const Type& reduced);

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
// fusable_reductions over rows of one length and that no node reads. kInput nodes have any shape. There may be
// kConstant nodes and immediates. Every output has the shape of the index space (the joint shape of all nodes without
// the reductions), one element, or the shape of a reduction. An intermediate node may have any shape that broadcasts to
// the index space.
//
// The results have the same bits as the ops one by one, for any number of threads. Only the sign of a NaN, which
// copysign can show, is unspecified.
class FusedKernel {
 public:
  // One run of a kernel, with the arguments of `run`.
  struct Call {
    const FusedKernel* kernel;
    std::span<const View> in, out;
  };

  // Throws Error "fused: …" for a body that breaks the rules above. Returns null for a body that the device does not
  // compile, or that needs checks of memory that the host cannot read.
  static std::shared_ptr<const FusedKernel> compile(const Graph& body, Device device = {});
  virtual ~FusedKernel() = default;

  // `in` has the types the body was compiled for, with any strides. `out` is contiguous. An output may use the memory
  // of an input with the same shape and element size, element for element, but must not overlap any other input. If run
  // throws Error (an integer division by zero), nothing has been written. `stream` is for devices other than the CPU.
  virtual void run(std::span<const View> in, std::span<const View> out, void* stream = nullptr) const = 0;
  // See TileKernel::iterate. Throws nothing.
  virtual int64_t iterate(const Recurrence&, std::span<const View> in, std::span<const View> out, int64_t most) const {
    return (void)in, (void)out, (void)most, -1;
  }
  // See TileKernel::run_all. Throws nothing.
  virtual bool batches() const { return false; }
  virtual void run_all(std::span<const Call> calls, void* stream = nullptr) const {
    for (const Call& c : calls) c.kernel->run(c.in, c.out, stream);
  }
};

// Hook for a compiler that generates code for the CPU. compile() calls it first. It returns null for a body that the
// vector machine should run. Its kernels keep the contract of FusedKernel. Returns the previous compiler, or null. Must
// be set at start-up, before any graph is planned.
using FusedCompiler = std::shared_ptr<const FusedKernel> (*)(const Graph& body);
FusedCompiler set_fused_compiler(FusedCompiler compiler);

}  // namespace pg
