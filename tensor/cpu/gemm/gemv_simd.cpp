#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/gemv_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/gemv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {

GemvLoops<float> float_gemv() { return Gemv<float>::kLoops; }
GemvLoops<double> double_gemv() { return Gemv<double>::kLoops; }

// One element of each of G products. Their sums do not wait for each other.
template <int G>
void dots(const BatchStrides& s, int64_t k, const float* a, int64_t a_step, const float* b, int64_t b_step, float* c) {
  const hn::CappedTag<float, 1> d;
  hn::Vec<decltype(d)> sum[G];
  PERIGEE_UNROLL
  for (int g = 0; g < G; ++g) sum[g] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) PERIGEE_UNROLL
  for (int g = 0; g < G; ++g)
    sum[g] = hn::MulAdd(hn::LoadU(d, b + g * s.b + i * b_step), hn::LoadU(d, a + g * s.a + i * a_step), sum[g]);
  PERIGEE_UNROLL
  for (int g = 0; g < G; ++g) hn::StoreU(sum[g], d, c + g * s.c);
}

void small_products(int64_t count, const BatchStrides& s, int64_t m, int64_t n, int64_t k, const float* a, Layout la,
                    const float* b, Layout lb, float* c, int64_t ldc) {
  constexpr int kTogether = 8;
  while (count > 0) {
    const int together = count >= kTogether ? kTogether : 1;
    const auto run = together == 1 ? dots<1> : dots<kTogether>;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) run(s, k, a + i * la.row, la.col, b + j * lb.col, lb.row, c + i * ldc + j);
    a += together * s.a, b += together * s.b, c += together * s.c, count -= together;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

HWY_EXPORT(float_gemv);
HWY_EXPORT(double_gemv);
HWY_EXPORT(small_products);

GemvLoops<float> gemv_loops(float) { return HWY_DYNAMIC_DISPATCH(float_gemv)(); }
GemvLoops<double> gemv_loops(double) { return HWY_DYNAMIC_DISPATCH(double_gemv)(); }

void small_products_f32(int64_t count, const BatchStrides& s, int64_t m, int64_t n, int64_t k, const float* a,
                        Layout la, const float* b, Layout lb, float* c, int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(small_products)(count, s, m, n, k, a, la, b, lb, c, ldc);
}

}  // namespace pg::cpu
#endif
