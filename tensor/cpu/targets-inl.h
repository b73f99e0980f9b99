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

// To be called after code that leaves data in the upper halves of vector registers: generated code, and functions whose
// vector arguments the compiler passes on. Until the halves are cleared, instructions without them, such as most of
// libm's, take up to 25 times as long.
HWY_INLINE void clear_upper_halves() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  _mm256_zeroupper();
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

// y in the lanes where `found` holds, else f of the lanes of x, one by one.
template <class D, class M, class F, class... V>
HWY_INLINE hn::Vec<D> or_by_lane(D d, M found, hn::Vec<D> y, F f, V... x) {
  if (HWY_LIKELY(hn::AllTrue(d, found))) return y;
  HWY_ALIGN hn::TFromD<D> in[sizeof...(x)][hn::MaxLanes(D())], out[hn::MaxLanes(D())];
  uint8_t bits[8];
  size_t k = 0;
  (hn::Store(x, d, in[k++]), ...);
  hn::Store(y, d, out);
  hn::StoreMaskBits(d, found, bits);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (bits[i / 8] >> i % 8 & 1) continue;
    if constexpr (sizeof...(x) == 1)
      out[i] = f(in[0][i]);
    else
      out[i] = f(in[0][i], in[1][i]);
  }
  return hn::Load(d, out);
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

// The bits of the nearest bfloat16, in the upper half of each lane.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bfloat16_bits(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto nan = hn::RebindMask(du, hn::IsNaN(x));
  const auto chosen = hn::IfThenElse(nan, hn::Or(bits, hn::Set(du, 0x400000u)), rounded);
  return hn::And(chosen, hn::Set(du, 0xffff0000u));
}
template <class D>
HWY_INLINE hn::Vec<D> load_bfloats(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), from))));
}
template <class D>
HWY_INLINE void store_bfloats(D d, hn::Vec<D> v, uint16_t* to) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(di, hn::ShiftRight<16>(bfloat16_bits(d, v)))), narrow, to);
}

// Reads and writes one vector of D from and to any floating dtype that D is the arithmetic of.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  return load_halves(d, &from->bits);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
  return load_bfloats(d, &from->bits);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
  hn::StoreU(v, d, to);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Half* to) {
  store_halves(d, v, &to->bits);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, BFloat16* to) {
  store_bfloats(d, v, &to->bits);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PERIGEE_TARGETS_INL_H
