// Steps of chains: elementary functions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/tile_simd_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/chain-inl.h"
#include "tensor/cpu/pointwise/tile_simd_math.h"
#include "tensor/cpu/pointwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

static Codes math_codes(ChainOp op) {
  switch (op) {
#define X(name, ...)     \
  case ChainOp::k##name: \
    return UnaryCode<Vector##name>::codes();
    PERIGEE_CHAIN_MATH(X)
#undef X
    default:
      return {};
  }
}

void fill_math(Step& step, ChainOp op) {
  const Codes codes = math_codes(op);
  step.block = reinterpret_cast<Step::Code>(codes.block[0]);
  step.part = reinterpret_cast<Step::Code>(codes.part);
  step.one = reinterpret_cast<Step::Code>(codes.one);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(fill_math);
void set_math_code(Step& step, ChainOp op) { HWY_DYNAMIC_DISPATCH(fill_math)(step, op); }
}  // namespace pg::cpu
#endif
