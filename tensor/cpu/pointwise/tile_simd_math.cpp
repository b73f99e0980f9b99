// Steps of chains: elementary functions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/tile_simd_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/chain-inl.h"
#include "tensor/cpu/pointwise/math_formulas-inl.h"
#include "tensor/cpu/pointwise/tile_simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

void fill_math(Step& step, int index, int operand) {
  fill_step(step, listed_codes<formulas::Math>(index, false, operand, formulas::MathFormulas()));
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(fill_math);
void set_math_code(Step& step, int index, int operand) { HWY_DYNAMIC_DISPATCH(fill_math)(step, index, operand); }
}  // namespace pg::cpu
#endif
