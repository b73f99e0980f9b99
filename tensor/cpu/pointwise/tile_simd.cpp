// Steps of chains: memory, pairs of ops, the formulas of formulas-inl.h; and the way a chain is run.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/tile_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/chain-inl.h"
#include "tensor/cpu/pointwise/tile_simd_math.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

namespace f = formulas;
using FAdd = OnVectors<f::Add>;
using FSub = OnVectors<f::Sub>;
using FSubOf = Swapped<FSub>;
using FMul = OnVectors<f::Mul>;
using FSquare = OnVectors<f::Square>;
using FCube = OnVectors<f::Cube>;
using FRoot = OnVectors<f::Root>;

#define PERIGEE_FUNCTOR1(Name, ...)                            \
  struct Name {                                                \
    template <class D, class V>                                \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x) const { \
      return __VA_ARGS__;                                      \
    }                                                          \
  };
#define PERIGEE_FUNCTOR3(Name, ...)                                      \
  struct Name {                                                          \
    template <class D, class V>                                          \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, V a, V b) const { \
      return __VA_ARGS__;                                                \
    }                                                                    \
  };
template <class D, class V>
HWY_INLINE V round_half(D d, V x) {
  uint16_t halves[hn::MaxLanes(D())];
  store_halves(d, x, halves);
  return load_halves(d, halves);
}
template <class D, class V>
HWY_INLINE V where(D, V condition, V x, V y) {
  using Lanes = f::Lanes<D>;
  return f::raw(f::Where()(f::Mask<D>{hn::MaskFromVec(condition)}, Lanes(x), Lanes(y)));
}
PERIGEE_FUNCTOR1(FFromBool, hn::And(x, hn::Set(d, 1.0f)))
PERIGEE_FUNCTOR1(FNonZero, f::raw(f::nonzero(f::Lanes<D>(x))))
PERIGEE_FUNCTOR1(FRoundHalf, round_half(d, x))
PERIGEE_FUNCTOR1(FRoundBFloat16, hn::BitCast(d, bfloat16_bits(d, x)))
PERIGEE_FUNCTOR3(FWhere, where(d, a, x, b))
PERIGEE_FUNCTOR3(FWhereOf, where(d, a, b, x))
PERIGEE_FUNCTOR3(FWhereMask, where(d, x, a, b))

struct FLoad {
  template <class D, class V>
  HWY_INLINE V operator()(D, V, V y) const {
    return y;
  }
};
template <class First, class Second>
struct FPair {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V a, V b) const {
    return make_functor<Second>(nullptr)(d, make_functor<First>(nullptr)(d, x, a), b);
  }
};
template <class First, class Second>
struct FJoin {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V a, V b) const {
    return make_functor<Second>(nullptr)(d, x, make_functor<First>(nullptr)(d, a, b));
  }
};

static void stream_block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
  const WideTag d;
  float* p = reinterpret_cast<float*>(memory[step->a]) + i;
#define PERIGEE_APPLY(x, k) hn::Stream(x, d, p + k * int64_t(hn::Lanes(d)));
  PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
  PERIGEE_NEXT_BLOCK;
}

struct Plus {
  HWY_INLINE Wide operator()(Wide x, Wide sum) const { return hn::Add(sum, x); }
};
struct PlusSquare {
  HWY_INLINE Wide operator()(Wide x, Wide sum) const { return hn::MulAdd(x, x, sum); }
};
template <class F>
struct SumCode {
  static float* sums(const Step* step, Memory memory) { return reinterpret_cast<float*>(memory[step->a]); }
  static void block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
    const WideTag d;
    float* p = sums(step, memory);
#define PERIGEE_APPLY(x, k) add(x, p + k * int64_t(hn::Lanes(d)));
    PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
    PERIGEE_NEXT_BLOCK;
  }
  static void part(const Step* step, Memory memory, int64_t i, size_t count, Wide x) {
    const WideTag d;
    float* p = sums(step, memory);
    if (count == hn::Lanes(d))
      add(x, p);
    else
      hn::StoreU(x, d, p + 8 * hn::Lanes(d));
    PERIGEE_NEXT_PART;
  }
  static void one(const Step* step, Memory memory, One x) {
    sums(step, memory)[8 * hn::Lanes(WideTag())] = hn::GetLane(x);
    PERIGEE_NEXT_ONE;
  }
  static HWY_INLINE void add(Wide x, float* sum) { hn::StoreU(F()(x, hn::LoadU(WideTag(), sum)), WideTag(), sum); }
  static constexpr Codes codes() { return {{block, block, block, block}, part, one}; }
};

static void end_block(const Step*, Memory, int64_t, PERIGEE_BLOCK) {
  (void)x0, (void)x1, (void)x2, (void)x3, (void)x4, (void)x5, (void)x6, (void)x7;
}
static void end_part(const Step*, Memory, int64_t, size_t, Wide) {}
static void end_one(const Step*, Memory, One) {}

static Codes basic_codes(ChainOp op) {
  switch (op) {
    case ChainOp::kEnd:
      return {{end_block, end_block, end_block, end_block}, end_part, end_one};
    case ChainOp::kLoad:
      return BinaryCode<FLoad, Floats>::codes();
    case ChainOp::kLoadHalf:
      return BinaryCode<FLoad, Halves>::codes();
    case ChainOp::kLoadBFloat16:
      return BinaryCode<FLoad, BFloats>::codes();
    case ChainOp::kLoadBool:
      return BinaryCode<FLoad, Bools>::codes();
    case ChainOp::kLoadByte:
      return BinaryCode<FLoad, Bytes>::codes();
    case ChainOp::kStore:
      return StoreCode<Floats>::codes();
    case ChainOp::kStoreHalf:
      return StoreCode<Halves>::codes();
    case ChainOp::kStoreBFloat16:
      return StoreCode<BFloats>::codes();
    case ChainOp::kStoreBool:
      return StoreCode<Bools>::codes();
    case ChainOp::kStream:
      return {
          {stream_block, stream_block, stream_block, stream_block}, StoreCode<Floats>::part, StoreCode<Floats>::one};
    case ChainOp::kAddUp:
      return SumCode<Plus>::codes();
    case ChainOp::kAddSquares:
      return SumCode<PlusSquare>::codes();
    case ChainOp::kWhere:
      return TernaryCode<FWhere, Bools, Floats>::codes();
    case ChainOp::kWhereOf:
      return TernaryCode<FWhereOf, Bools, Floats>::codes();
    case ChainOp::kWhereMask:
      return TernaryCode<FWhereMask, Floats, Floats>::codes();
#define X(name)          \
  case ChainOp::k##name: \
    return UnaryCode<F##name>::codes();
      PERIGEE_CHAIN_UNARY(X)
#undef X
#define X(name)          \
  case ChainOp::k##name: \
    return BinaryCode<F##name, Floats>::codes();
      PERIGEE_CHAIN_BINARY(X)
#undef X
#define X(first, second)                \
  case ChainOp::k##first##Then##second: \
    return TernaryCode<FPair<F##first, F##second>, Floats, Floats>::codes();
      PERIGEE_CHAIN_PAIRS(X)
#undef X
#define X(first, second)                  \
  case ChainOp::kJoin##first##By##second: \
    return TernaryCode<FJoin<F##first, F##second>, Floats, Floats>::codes();
      PERIGEE_CHAIN_JOINS(X)
#undef X
    default:
      return {};
  }
}

void fill_basic(Step& step, ChainOp op) { fill_step(step, basic_codes(op)); }

void fill_formula(Step& step, int index, bool bools, int operand) {
  fill_step(step, listed_codes<formulas::Basic>(index, bools, operand, formulas::BasicFormulas()));
}

void flush_streams() { hwy::FlushStream(); }

int64_t block_size() { return int64_t(8 * hn::Lanes(WideTag())); }

// Fetches a block of each operand, a kilobyte ahead. A page ahead would take the places of this block in the cache.
HWY_NOINLINE void fetch(std::span<const Fetch> fetches, Memory memory, int64_t i) {
  constexpr int64_t kAhead = 1024;
  constexpr int kLines = int(8 * hn::MaxLanes(WideTag()) * sizeof(float) / 64);
  for (const Fetch& f : fetches) {
    const char* from = memory[f.a] + i * f.size + kAhead;
#pragma GCC unroll 8
    for (int k = 0; k < kLines; ++k) __builtin_prefetch(from + k * 16 * f.size);
  }
}

HWY_INLINE void run_blocks(const Step* steps, Memory memory, int64_t n, bool repeatable,
                           std::span<const Fetch> fetches) {
  if (n == 1) return reinterpret_cast<OneCode>(steps->one)(steps, memory, hn::Undefined(OneTag()));
  const int64_t lanes = int64_t(hn::Lanes(WideTag())), size = 8 * lanes;
  const Wide none = hn::Zero(WideTag());
  int64_t i = 0;
  const auto block = reinterpret_cast<BlockCode>(steps->block);
  for (; i + size <= n; i += size) {
    fetch(fetches, memory, i);
    block(steps, memory, i, none, none, none, none, none, none, none, none);
  }
  if (repeatable && i > 0 && i < n)
    return block(steps, memory, n - size, none, none, none, none, none, none, none, none);
  for (; i < n; i += lanes)
    reinterpret_cast<PartCode>(steps->part)(steps, memory, i, size_t(std::min(lanes, n - i)), none);
}

void run_steps(const Step* steps, Memory memory, int64_t n, bool repeatable, std::span<const Fetch> fetches) {
  run_blocks(steps, memory, n, repeatable, fetches);
  clear_upper_halves();
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
namespace {

HWY_EXPORT(fill_basic);
HWY_EXPORT(fill_formula);
HWY_EXPORT(block_size);
HWY_EXPORT(run_steps);
HWY_EXPORT(flush_streams);

constexpr int formula_code(ChainOp op) { return int(op) - int(ChainOp::kFormula); }

}  // namespace

void set_code(Step& step, ChainOp op) {
  const int code = formula_code(op), row = code / 4, operand = code % 2;
  step.op = op;
  if (code < 0) return HWY_DYNAMIC_DISPATCH(fill_basic)(step, op);
  if (row >= kMaxSpans) return set_math_code(step, row - kMaxSpans, operand);
  HWY_DYNAMIC_DISPATCH(fill_formula)(step, row, code % 4 >= 2, operand);
}

int chain_cost(ChainOp op) {
  const int code = formula_code(op);
  if (code >= 0) return span_at(code / 4).step_cost;
  return op >= ChainOp::kLoadThenAdd ? 45 : 25;
}

int64_t chain_block() { return HWY_DYNAMIC_DISPATCH(block_size)(); }

void finish_streams() { HWY_DYNAMIC_DISPATCH(flush_streams)(); }

void run_chain(const Step* steps, char* const* memory, int64_t n, bool repeatable, std::span<const Fetch> fetches) {
  HWY_DYNAMIC_DISPATCH(run_steps)(steps, memory, n, repeatable, fetches);
}

}  // namespace pg::cpu
#endif
