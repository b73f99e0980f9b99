// Fused pointwise computations as graphs pass them to a device: one index space, inputs that broadcast to it, values in
// static single assignment form, outputs, and final reductions over the last dims.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "tensor/op.h"
#include "tensor/small_vector.h"

namespace pg {

inline constexpr int kMaxTileOperands = 3;
inline constexpr int kMaxTileParams = 4;

struct TileValue {
  enum class Kind : uint8_t {
    kInput,     // input `index`
    kConstant,  // the constant `number`
    kOp,        // the pointwise `op`, applied to `operands`
    kConvert,   // operands[0], converted
  };
  Kind kind = Kind::kInput;
  // The dtype that holds the value. Values of float16 and bfloat16 tensors are held as float32, except inputs.
  DType dtype = DType::kFloat32;
  DType rounded = DType::kFloat32;  // float16 or bfloat16: the value is rounded to it; otherwise not used
  DType compute = DType::kFloat32;  // kOp: the dtype of the converted operands (conditions stay bool); never a half
  int8_t count = 0;                 // number of operands
  int32_t index = 0;
  int32_t operands[kMaxTileOperands] = {-1, -1, -1};
  double number = 0;
  const OpDef* op = nullptr;
  double params[kMaxTileParams] = {};  // see tile_params
};

struct TileInput {
  DType dtype;
  Dims shape;  // broadcasts to the space
};

struct TileOutput {
  int32_t value;
  DType dtype;
  bool single;  // has one element even if the space has more
};

// The reduction of a value over the last dims of the space.
struct TileReduction {
  const OpDef* op = nullptr;  // see tile_reduces
  int32_t value = -1;
  DType storage = DType::kFloat32;  // of the value that is reduced
  int64_t row = 1;                  // number of elements per total
  DType dtype = DType::kFloat32;    // of the result
};

struct TileBody {
  Dims space;
  std::vector<TileInput> inputs;
  std::vector<TileValue> values;  // operands come before their users
  std::vector<TileOutput> outputs;
  std::vector<TileReduction> reductions;  // of one `row`; at most one on other devices than the CPU
};

// How a body of one-element tensors runs again and again: after each run, input `in` takes the value of output `out`.
struct Recurrence {
  struct Carry {
    int32_t in, out;
  };
  SmallVector<Carry, 4> carries;
  int32_t index = -1;  // an int64 input that grows by one after each run
  int32_t flag = -1;   // a bool output; the last run is the first that makes it false
};

class TileKernel;

// One run of a kernel, with the arguments of TileKernel::run.
struct TileCall {
  const TileKernel* kernel;
  std::span<const View> in, out;
};

// A compiled fused body. Immutable: several threads may call `run` at once. Results do not depend on the number of
// threads.
class TileKernel {
 public:
  virtual ~TileKernel() = default;
  // `in`: the inputs of the body, with any strides. `out`: its outputs, contiguous, followed by the results of its
  // reductions. An output may use the memory of an input of the same shape and element size. `stream`: for devices
  // other than the CPU.
  virtual void run(std::span<const View> in, std::span<const View> out, void* stream = nullptr) const = 0;
  // Runs the body at most `most` times with its state in the first-level cache. `in` holds the state before, `out`
  // takes that after the last run; they may be the same memory. Every output is a carry or the flag. Returns the number
  // of runs, or -1 for a body that can only run once.
  virtual int64_t iterate(const Recurrence&, std::span<const View> in, std::span<const View> out, int64_t most) const {
    return (void)in, (void)out, (void)most, -1;
  }
  // Whether run_all takes the kernel. It is called on one of the kernels, which are all of one device, and runs them at
  // once: none writes what another one reads or writes.
  virtual bool batches() const { return false; }
  virtual void run_all(std::span<const TileCall> calls, void* stream = nullptr) const {
    for (const TileCall& c : calls) c.kernel->run(c.in, c.out, stream);
  }
};
std::shared_ptr<const TileKernel> make_tile_kernel(TileBody body);

// Whether a kOp value may apply this pointwise op in dtype `compute`.
bool tile_computes(const OpDef& op, DType compute);
// Whether the op can be a reduction of a body: it sums, multiplies, counts or takes an extreme.
bool tile_reduces(const OpDef& op);
// Converts up to kMaxTileParams attributes of an op to numbers, in order: flags become 0 or 1, choices become their
// index, and one that is not given becomes NaN.
void tile_params(const OpDef& op, const Attrs& attrs, double* params);
// Whether the op refuses some integers as its second input; tile_check throws the op's error when there is one.
bool tile_checks(const OpDef& op);
void tile_check(const OpDef& op, const View& divisor);

}  // namespace pg
