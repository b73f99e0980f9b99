// The loop over the rotations of a strip.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/linalg/rotations_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "tensor/cpu/linalg/rotations.h"
#include "tensor/cpu/loops.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void rotate(const ColumnRotation<T>* rotations, int64_t count, T* strip) {
  constexpr int64_t kLanes = kStripBytes / int64_t(sizeof(T));
  for (int64_t k = 0; k < count; ++k) {
    const T c = rotations[k].c, s = rotations[k].s;
    T *x = strip + rotations[k].i * kLanes, *y = strip + rotations[k].j * kLanes;
    PERIGEE_INDEPENDENT
    for (int64_t q = 0; q < kLanes; ++q) {
      const T a = x[q], b = y[q];
      x[q] = c * a + s * b;
      y[q] = c * b - s * a;
    }
  }
}

void rotate_float(const ColumnRotation<float>* rotations, int64_t count, float* strip) {
  rotate(rotations, count, strip);
}
void rotate_double(const ColumnRotation<double>* rotations, int64_t count, double* strip) {
  rotate(rotations, count, strip);
}

}  // namespace
}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(rotate_float);
HWY_EXPORT(rotate_double);

void rotate_strip(const ColumnRotation<float>* rotations, int64_t count, float* strip) {
  HWY_DYNAMIC_DISPATCH(rotate_float)(rotations, count, strip);
}
void rotate_strip(const ColumnRotation<double>* rotations, int64_t count, double* strip) {
  HWY_DYNAMIC_DISPATCH(rotate_double)(rotations, count, strip);
}

}  // namespace pg::cpu
#endif
