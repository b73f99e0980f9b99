// Functions that Highway's targets compute differently, with the same result on all of them. Include after highway.h,
// once per target.
#if defined(PERIGEE_TARGETS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_TARGETS_INL_H
#undef PERIGEE_TARGETS_INL_H
#else
#define PERIGEE_TARGETS_INL_H
#endif

#include "hwy/highway.h"
#include "tensor/dtype.h"

// Max and Min of x86 vectors return the second operand when either is NaN. Those of the scalar target do not.
#undef PERIGEE_SECOND_WINS
#define PERIGEE_SECOND_WINS (HWY_ARCH_X86 && HWY_TARGET < HWY_EMU128)

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The larger of the two; b when either is NaN.
template <class V>
HWY_INLINE V max_or_second(V a, V b) {
#if PERIGEE_SECOND_WINS
  return hn::Max(a, b);
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}

// The smaller of the two; b when either is NaN.
template <class V>
HWY_INLINE V min_or_second(V a, V b) {
#if PERIGEE_SECOND_WINS
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

// load_part reads the first `count` lanes and sets the others to `fill`; store_part writes only the first `count`. They
// touch no other memory; Highway's masked loads do before AVX2.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* from, int64_t count, hn::TFromD<D> fill = 0) {
#if HWY_TARGET <= HWY_AVX2
  const auto valid = hn::FirstN(d, size_t(count));
  const auto v = hn::MaskedLoad(valid, d, from);
  return fill == 0 ? v : hn::IfThenElse(valid, v, hn::Set(d, fill));
#else
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(D())];
  hn::Store(hn::Set(d, fill), d, buffer);
  for (int64_t i = 0; i < count; ++i) buffer[i] = from[i];
  return hn::Load(d, buffer);
#endif
}
template <class D>
HWY_INLINE void store_part(D d, hn::Vec<D> v, hn::TFromD<D>* to, int64_t count) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, size_t(count)), d, to);
#else
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(D())];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; ++i) to[i] = buffer[i];
#endif
}

// Converts one vector of floats from and to float16, rounded to nearest even. CPUs below AVX2 have no instruction for
// it, and Highway's replacement saturates.
template <class D>
HWY_INLINE hn::Vec<D> load_halves(D d, const uint16_t* from) {
#if HWY_TARGET <= HWY_AVX2
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(from)));
#else
  HWY_ALIGN float wide[hn::MaxLanes(D())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    Half half;
    half.bits = from[i];
    wide[i] = half;
  }
  return hn::Load(d, wide);
#endif
}
template <class D>
HWY_INLINE void store_halves(D d, hn::Vec<D> v, uint16_t* to) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float wide[hn::MaxLanes(D())];
  hn::Store(v, d, wide);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = Half(wide[i]).bits;
#endif
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PERIGEE_TARGETS_INL_H
