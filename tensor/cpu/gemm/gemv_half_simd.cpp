#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/gemv_half_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/gemv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {

GemvLoops<Half> half_gemv() { return Gemv<Half>::kLoops; }
GemvLoops<BFloat16> bfloat16_gemv() { return Gemv<BFloat16>::kLoops; }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

HWY_EXPORT(half_gemv);
HWY_EXPORT(bfloat16_gemv);

GemvLoops<Half> gemv_loops(Half) { return HWY_DYNAMIC_DISPATCH(half_gemv)(); }
GemvLoops<BFloat16> gemv_loops(BFloat16) { return HWY_DYNAMIC_DISPATCH(bfloat16_gemv)(); }

}  // namespace pg::cpu
#endif
