// Templates that make the steps of chains from vector functors, compiled once per target. Include after highway.h.
//
// Each op has three codes: for a block of eight vectors, for one vector of which `count` lanes are used, and for one
// element. The vectors of a block stay in argument registers from step to step, since the jump to the next step is a
// tail call.
#if defined(PERIGEE_CHAIN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_CHAIN_INL_H
#undef PERIGEE_CHAIN_INL_H
#else
#define PERIGEE_CHAIN_INL_H
#endif

#include "tensor/cpu/pointwise/spans-inl.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/cpu/pointwise/tile_simd.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WideTag = hn::ScalableTag<float>;
using Wide = hn::Vec<WideTag>;
using OneTag = hn::CappedTag<float, 4>;
using One = hn::Vec<OneTag>;
using Memory = char* const*;

#define PERIGEE_BLOCK Wide x0, Wide x1, Wide x2, Wide x3, Wide x4, Wide x5, Wide x6, Wide x7
#define PERIGEE_EACH(apply) \
  apply(x0, 0) apply(x1, 1) apply(x2, 2) apply(x3, 3) apply(x4, 4) apply(x5, 5) apply(x6, 6) apply(x7, 7)

using BlockCode = void (*)(const Step*, Memory, int64_t, PERIGEE_BLOCK);
using PartCode = void (*)(const Step*, Memory, int64_t, size_t count, Wide);
using OneCode = void (*)(const Step*, Memory, One);

#define PERIGEE_NEXT_BLOCK \
  return reinterpret_cast<BlockCode>(step[1].block)(step + 1, memory, i, x0, x1, x2, x3, x4, x5, x6, x7)
#define PERIGEE_NEXT_PART return reinterpret_cast<PartCode>(step[1].part)(step + 1, memory, i, count, x)
#define PERIGEE_NEXT_ONE return reinterpret_cast<OneCode>(step[1].one)(step + 1, memory, x)

// The three codes of an op. Bits of the index of `block`: operand a, operand b is one element for all.
struct Codes {
  BlockCode block[4];
  PartCode part;
  OneCode one;
};

// --- Kinds of memory: how to read and write a vector, a part of one, and one element for all lanes ---

struct Floats {
  using T = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load_some(D d, const T* p, size_t count) {
    return load_part(d, p, count);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load_one(D d, const T* p) {
    return hn::Set(d, *p);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> x, T* p) {
    hn::StoreU(x, d, p);
  }
  template <class D>
  static HWY_INLINE void store_some(D d, hn::Vec<D> x, T* p, size_t count) {
    store_part(d, x, p, count);
  }
  template <class D>
  static HWY_INLINE void store_one(D, hn::Vec<D> x, T* p) {
    *p = hn::GetLane(x);
  }
};

// Kinds that convert: Base has load and store of whole vectors.
template <class Base, class Element>
struct Converted : Base {
  using T = Element;
  template <class D>
  static HWY_INLINE hn::Vec<D> load_some(D d, const T* p, size_t count) {
    HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, count * sizeof(T));
    return Base::load(d, buffer);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load_one(D d, const T* p) {
    HWY_ALIGN T buffer[hn::MaxLanes(d)];
    for (size_t k = 0; k < hn::Lanes(d); ++k) buffer[k] = *p;
    return Base::load(d, buffer);
  }
  template <class D>
  static HWY_INLINE void store_some(D d, hn::Vec<D> x, T* p, size_t count) {
    HWY_ALIGN T buffer[hn::MaxLanes(d)];
    Base::store(d, x, buffer);
    std::memcpy(p, buffer, count * sizeof(T));
  }
  template <class D>
  static HWY_INLINE void store_one(D d, hn::Vec<D> x, T* p) {
    store_some(d, x, p, 1);
  }
};

struct HalfVectors {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    return load_halves(d, p);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> x, uint16_t* p) {
    store_halves(d, x, p);
  }
};
using Halves = Converted<HalfVectors, uint16_t>;

struct BFloat16Vectors {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    return load_bfloats(d, p);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> x, uint16_t* p) {
    store_bfloats(d, x, p);
  }
};
using BFloats = Converted<BFloat16Vectors, uint16_t>;

// Bytes 0 and 1 as masks.
struct BoolVectors {
  template <class D>
  using Tag = hn::Rebind<uint8_t, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* p) {
    const hn::RebindToSigned<D> di;
    return hn::BitCast(d, hn::Neg(hn::PromoteTo(di, hn::LoadU(Tag<D>(), p))));
  }
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> x, uint8_t* p) {
    const hn::RebindToSigned<D> di;
    hn::StoreU(hn::DemoteTo(Tag<D>(), hn::Neg(hn::BitCast(di, x))), Tag<D>(), p);
  }
};
using Bools = Converted<BoolVectors, uint8_t>;

// Integers, which nothing stores.
struct ByteVectors {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* p) {
    const hn::RebindToSigned<D> di;
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, D>(), p)));
  }
};
using Bytes = Converted<ByteVectors, uint8_t>;

// An operand of a block.
template <class K, bool scalar>
struct Source {
  const typename K::T* p;
  Wide all;
  HWY_INLINE Source(Memory memory, int32_t entry, int64_t i, int32_t mask) {
    p = reinterpret_cast<const typename K::T*>(memory[entry]);
    if constexpr (scalar)
      all = K::load_one(WideTag(), p);
    else
      p += i & mask;
  }
  HWY_INLINE Wide operator[](int k) const {
    if constexpr (scalar)
      return all;
    else
      return K::load(WideTag(), p + k * int64_t(hn::Lanes(WideTag())));
  }
};
template <class K>
HWY_INLINE Wide part_of(Memory memory, int32_t entry, int64_t i, int32_t mask, bool scalar, size_t count) {
  const auto* p = reinterpret_cast<const typename K::T*>(memory[entry]);
  return scalar ? K::load_one(WideTag(), p) : K::load_some(WideTag(), p + (i & mask), count);
}
template <class K>
HWY_INLINE One one_of(Memory memory, int32_t entry) {
  return K::load_one(OneTag(), reinterpret_cast<const typename K::T*>(memory[entry]));
}

// --- The codes of an op by its number of operands in memory ---

template <class F>
struct UnaryCode {
  static void block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
    const F f = make_functor<F>(step->params);
    const WideTag d;
#define PERIGEE_APPLY(x, k) x = f(d, x);
    PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
    PERIGEE_NEXT_BLOCK;
  }
  static void part(const Step* step, Memory memory, int64_t i, size_t count, Wide x) {
    x = make_functor<F>(step->params)(WideTag(), x);
    PERIGEE_NEXT_PART;
  }
  static void one(const Step* step, Memory memory, One x) {
    x = make_functor<F>(step->params)(OneTag(), x);
    PERIGEE_NEXT_ONE;
  }
  static constexpr Codes codes() { return {{block, block, block, block}, part, one}; }
};

// K: what operand a is.
template <class F, class K>
struct BinaryCode {
  template <bool scalar>
  static void block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
    const F f = make_functor<F>(step->params);
    const WideTag d;
    const Source<K, scalar> a(memory, step->a, i, step->a_mask);
#define PERIGEE_APPLY(x, k) x = f(d, x, a[k]);
    PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
    PERIGEE_NEXT_BLOCK;
  }
  static void part(const Step* step, Memory memory, int64_t i, size_t count, Wide x) {
    x = make_functor<F>(step->params)(WideTag(), x,
                                      part_of<K>(memory, step->a, i, step->a_mask, step->a_scalar, count));
    PERIGEE_NEXT_PART;
  }
  static void one(const Step* step, Memory memory, One x) {
    x = make_functor<F>(step->params)(OneTag(), x, one_of<K>(memory, step->a));
    PERIGEE_NEXT_ONE;
  }
  static constexpr Codes codes() { return {{block<false>, block<true>, block<false>, block<true>}, part, one}; }
};

template <class F, class A, class B>
struct TernaryCode {
  template <bool scalar_a, bool scalar_b>
  static void block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
    const F f = make_functor<F>(step->params);
    const WideTag d;
    const Source<A, scalar_a> a(memory, step->a, i, step->a_mask);
    const Source<B, scalar_b> b(memory, step->b, i, step->b_mask);
#define PERIGEE_APPLY(x, k) x = f(d, x, a[k], b[k]);
    PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
    PERIGEE_NEXT_BLOCK;
  }
  static void part(const Step* step, Memory memory, int64_t i, size_t count, Wide x) {
    x = make_functor<F>(step->params)(WideTag(), x, part_of<A>(memory, step->a, i, step->a_mask, step->a_scalar, count),
                                      part_of<B>(memory, step->b, i, step->b_mask, step->b_scalar, count));
    PERIGEE_NEXT_PART;
  }
  static void one(const Step* step, Memory memory, One x) {
    x = make_functor<F>(step->params)(OneTag(), x, one_of<A>(memory, step->a), one_of<B>(memory, step->b));
    PERIGEE_NEXT_ONE;
  }
  static constexpr Codes codes() {
    return {{block<false, false>, block<true, false>, block<false, true>, block<true, true>}, part, one};
  }
};

template <class K>
struct StoreCode {
  static void block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
    const WideTag d;
    auto* p = reinterpret_cast<typename K::T*>(memory[step->a]) + (i & step->a_mask);
#define PERIGEE_APPLY(x, k) K::store(d, x, p + k * int64_t(hn::Lanes(d)));
    PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
    PERIGEE_NEXT_BLOCK;
  }
  static void part(const Step* step, Memory memory, int64_t i, size_t count, Wide x) {
    K::store_some(WideTag(), x, reinterpret_cast<typename K::T*>(memory[step->a]) + (i & step->a_mask), count);
    PERIGEE_NEXT_PART;
  }
  static void one(const Step* step, Memory memory, One x) {
    K::store_one(OneTag(), x, reinterpret_cast<typename K::T*>(memory[step->a]));
    PERIGEE_NEXT_ONE;
  }
  static constexpr Codes codes() { return {{block, block, block, block}, part, one}; }
};

// --- The codes of a formula ---

// With the accumulator as the second operand.
template <class G>
struct Swapped {
  G g;
  explicit Swapped(const double* params) : g(params) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return g(d, y, x);
  }
};

// On values as K reads them from memory.
template <class F, const FormulaRow& row, template <class> class Value, class K>
constexpr Codes codes_on(int operand) {
  using G = OnVectors<F, Value>;
  if constexpr (row.inputs == 1)
    return UnaryCode<G>::codes();
  else if constexpr (row.inputs == 2)
    return operand == 0 ? BinaryCode<G, K>::codes() : BinaryCode<Swapped<G>, K>::codes();
  else
    return TernaryCode<G, K, K>::codes();
}
template <class F, const FormulaRow& row>
Codes formula_codes([[maybe_unused]] bool bools, int operand) {
  if constexpr (row.lanes && !row.condition) {
    if constexpr (row.on_bools())
      if (bools) return codes_on<F, row, formulas::Truth, Bools>(operand);
    if constexpr (row.on_floats()) return codes_on<F, row, formulas::Lanes, Floats>(operand);
  }
  return {};
}
template <class List, int... k>
Codes listed_codes(int index, bool bools, int operand, std::integer_sequence<int, k...>) {
  using Fn = Codes (*)(bool, int);
  static constexpr Fn kCodes[] = {
      formula_codes<typename formulas::Listed<List, k>::F, formulas::Listed<List, k>::row>...};
  return kCodes[index](bools, operand);
}

HWY_INLINE void fill_step(Step& step, const Codes& codes) {
  step.block = reinterpret_cast<Step::Code>(codes.block[int(step.a_scalar) | int(step.b_scalar) << 1]);
  step.part = reinterpret_cast<Step::Code>(codes.part);
  step.one = reinterpret_cast<Step::Code>(codes.one);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
