// Fused pointwise computations, as graphs hand them to a device: one index space, inputs that broadcast to it, values
// in single-assignment form, outputs, and at most one reduction of the last dims at the end.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "tensor/op.h"

namespace pg {

inline constexpr int kMaxTileOperands = 3;
inline constexpr int kMaxTileParams = 4;

struct TileValue {
  enum class Kind : uint8_t {
    kInput,     // `index`
    kConstant,  // `number`
    kOp,        // the pointwise `op` of `operands`
    kConvert,   // operands[0], converted
  };
  Kind kind = Kind::kInput;
  // How it stands in memory. The values of float16 and bfloat16 tensors stand as float32 (inputs as they come).
  DType dtype = DType::kFloat32;
  DType rounded = DType::kFloat32;  // float16 or bfloat16: rounded to it, else without meaning
  DType compute = DType::kFloat32;  // of kOp: what the operands were converted to (conditions are bool); never a half
  int8_t count = 0;                 // operands
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
  bool single;  // has one element, though the space may have more
};

// The totals of a value over the last dims of the space.
struct TileReduction {
  const OpDef* op = nullptr;  // null: none; see tile_reduces
  int32_t value = -1;
  DType storage = DType::kFloat32;  // of what is reduced
  int64_t row = 1;                  // elements of one total
  DType dtype = DType::kFloat32;    // of the result
};

struct TileBody {
  Dims space;
  std::vector<TileInput> inputs;
  std::vector<TileValue> values;  // operands before their users
  std::vector<TileOutput> outputs;
  TileReduction reduction;
};

// Immutable; `run` may be called from several threads at once. Results do not depend on the number of threads.
class TileKernel {
 public:
  virtual ~TileKernel() = default;
  // `in`: the body's inputs, of any strides. `out`: its outputs, contiguous, and last the result of its reduction when
  // it has one. An output may be the memory of an input of the same shape and element size. `stream`: of a device other
  // than the CPU.
  virtual void run(std::span<const View> in, std::span<const View> out, void* stream = nullptr) const = 0;
};
std::shared_ptr<const TileKernel> make_tile_kernel(TileBody body);

// Whether values of kOp may apply the pointwise op in `compute`.
bool tile_computes(const OpDef& op, DType compute);
// Whether the op may be the reduction of a body, which sums, multiplies, counts or takes the extreme.
bool tile_reduces(const OpDef& op);
// The attributes of an op: numbers in order, flags as 0 and 1, choices by index.
void tile_params(const OpDef& op, const Attrs& attrs, double* params);
// Whether the op refuses some integers as its second input, and the look at them, which throws the op's error.
bool tile_checks(const OpDef& op);
void tile_check(const OpDef& op, const View& divisor);

}  // namespace pg
