// Steps of chains: arithmetic, comparisons, logic and selection, and the way a chain is run.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/tile_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/chain-inl.h"
#include "tensor/cpu/pointwise/tile_simd_math.h"

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

// Each functor is the vector form of the scalar one in tensor/kernels/scalar_ops.h, operation for operation.
#define PERIGEE_FUNCTOR1(Name, ...)                            \
  struct Name {                                                \
    template <class D, class V>                                \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x) const { \
      return __VA_ARGS__;                                      \
    }                                                          \
  };
#define PERIGEE_FUNCTOR2(Name, ...)                                 \
  struct Name {                                                     \
    template <class D, class V>                                     \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, V y) const { \
      return __VA_ARGS__;                                           \
    }                                                               \
  };
#define PERIGEE_FUNCTOR3(Name, ...)                                      \
  struct Name {                                                          \
    template <class D, class V>                                          \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, V a, V b) const { \
      return __VA_ARGS__;                                                \
    }                                                                    \
  };

template <class D, class M>
HWY_INLINE hn::Vec<D> as_bool(D d, M mask) {
  return hn::VecFromMask(d, mask);
}
template <class V>
HWY_INLINE auto as_mask(V x) {
  return hn::MaskFromVec(x);
}
// hn::Ne does not hold for NaN.
template <class D, class V>
HWY_INLINE V differs(D d, V x, V y) {
  return as_bool(d, hn::Not(hn::Eq(x, y)));
}
// NaN wins, that of x first.
template <class D, class V>
HWY_INLINE V larger(D, V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, max_or_second(x, y));
}
template <class D, class V>
HWY_INLINE V smaller(D, V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, min_or_second(x, y));
}
template <class D, class V>
HWY_INLINE V limited(D d, V x, float low, float high) {
  const V lowest = hn::Set(d, low), highest = hn::Set(d, high);
  return hn::IfThenElse(hn::Lt(x, lowest), lowest, hn::IfThenElse(hn::Gt(x, highest), highest, x));
}
template <class D, class V>
HWY_INLINE V relu6(D d, V x) {
  const V six = hn::Set(d, 6.0f);
  return hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), hn::IfThenElse(hn::Ge(x, six), six, x));
}
template <class D, class V>
HWY_INLINE V lerp(D d, V x, V y, V w) {
  const V one = hn::Set(d, 1.0f), span = hn::Sub(y, x);
  const V near_x = hn::Add(x, hn::Mul(w, span)), near_y = hn::Sub(y, hn::Mul(span, hn::Sub(one, w)));
  return hn::IfThenElse(hn::Lt(hn::Abs(w), hn::Set(d, 0.5f)), near_x, near_y);
}
template <class D, class V>
HWY_INLINE V sign(D d, V x) {
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  return hn::Sub(hn::IfThenElseZero(hn::Gt(x, zero), one), hn::IfThenElseZero(hn::Lt(x, zero), one));
}
template <class D, class V>
HWY_INLINE V round_half(D d, V x) {
  uint16_t halves[hn::MaxLanes(D())];
  store_halves(d, x, halves);
  return load_halves(d, halves);
}

PERIGEE_FUNCTOR1(FNeg, hn::Neg(x))
PERIGEE_FUNCTOR1(FAbs, hn::Abs(x))
PERIGEE_FUNCTOR1(FSign, sign(d, x))
PERIGEE_FUNCTOR1(FSquare, hn::Mul(x, x))
PERIGEE_FUNCTOR1(FCube, hn::Mul(hn::Mul(x, x), x))
PERIGEE_FUNCTOR1(FSqrt, hn::Sqrt(x))
PERIGEE_FUNCTOR1(FRsqrt, hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)))
PERIGEE_FUNCTOR1(FReciprocal, hn::Div(hn::Set(d, 1.0f), x))
PERIGEE_FUNCTOR1(FFloor, hn::Floor(x))
PERIGEE_FUNCTOR1(FCeil, hn::Ceil(x))
PERIGEE_FUNCTOR1(FRound, hn::Round(x))
PERIGEE_FUNCTOR1(FTrunc, hn::Trunc(x))
PERIGEE_FUNCTOR1(FRelu, hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), x))
PERIGEE_FUNCTOR1(FRelu6, relu6(d, x))
PERIGEE_FUNCTOR1(FHardsigmoid, hn::Div(relu6(d, hn::Add(x, hn::Set(d, 3.0f))), hn::Set(d, 6.0f)))
PERIGEE_FUNCTOR1(FHardswish, hn::Div(hn::Mul(x, relu6(d, hn::Add(x, hn::Set(d, 3.0f)))), hn::Set(d, 6.0f)))
PERIGEE_FUNCTOR1(FSoftsign, hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Abs(x))))
PERIGEE_FUNCTOR1(FIsNan, as_bool(d, hn::IsNaN(x)))
PERIGEE_FUNCTOR1(FIsInf, as_bool(d, hn::Eq(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::infinity()))))
PERIGEE_FUNCTOR1(FIsFinite, as_bool(d, hn::Le(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::max()))))
PERIGEE_FUNCTOR1(FNot, hn::Not(x))
PERIGEE_FUNCTOR1(FFromBool, hn::And(x, hn::Set(d, 1.0f)))
PERIGEE_FUNCTOR1(FNonZero, differs(d, x, hn::Zero(d)))
PERIGEE_FUNCTOR1(FRoundHalf, round_half(d, x))
PERIGEE_FUNCTOR1(FRoundBFloat16, hn::BitCast(d, bfloat16_bits(d, x)))

struct FLeakyRelu {
  float slope;
  explicit FLeakyRelu(const double* params) : slope(float(params[0])) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, hn::Set(d, slope)));
  }
};
struct FHardtanh {
  float low, high;
  explicit FHardtanh(const double* params) : low(float(params[0])), high(float(params[1])) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return limited(d, x, low, high);
  }
};

template <class D, class V>
HWY_INLINE V relu_grad(D d, V dy, V y) {
  return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
}
template <class D, class V>
HWY_INLINE V tanh_grad(D d, V dy, V y) {
  return hn::Mul(dy, hn::Sub(hn::Set(d, 1.0f), hn::Mul(y, y)));
}
template <class D, class V>
HWY_INLINE V sigmoid_grad(D d, V dy, V y) {
  return hn::Mul(dy, hn::Mul(y, hn::Sub(hn::Set(d, 1.0f), y)));
}

PERIGEE_FUNCTOR2(FLoad, ((void)x, y))
PERIGEE_FUNCTOR2(FAdd, hn::Add(x, y))
PERIGEE_FUNCTOR2(FSub, hn::Sub(x, y))
PERIGEE_FUNCTOR2(FSubOf, hn::Sub(y, x))
PERIGEE_FUNCTOR2(FMul, hn::Mul(x, y))
PERIGEE_FUNCTOR2(FDiv, hn::Div(x, y))
PERIGEE_FUNCTOR2(FDivOf, hn::Div(y, x))
PERIGEE_FUNCTOR2(FMaximum, larger(d, x, y))
PERIGEE_FUNCTOR2(FMaximumOf, larger(d, y, x))
PERIGEE_FUNCTOR2(FMinimum, smaller(d, x, y))
PERIGEE_FUNCTOR2(FMinimumOf, smaller(d, y, x))
PERIGEE_FUNCTOR2(FEq, as_bool(d, hn::Eq(x, y)))
PERIGEE_FUNCTOR2(FNe, differs(d, x, y))
PERIGEE_FUNCTOR2(FLt, as_bool(d, hn::Lt(x, y)))
PERIGEE_FUNCTOR2(FLe, as_bool(d, hn::Le(x, y)))
PERIGEE_FUNCTOR2(FGt, as_bool(d, hn::Gt(x, y)))
PERIGEE_FUNCTOR2(FGe, as_bool(d, hn::Ge(x, y)))
PERIGEE_FUNCTOR2(FReluGrad, relu_grad(d, x, y))
PERIGEE_FUNCTOR2(FReluGradOf, relu_grad(d, y, x))
PERIGEE_FUNCTOR2(FTanhGrad, tanh_grad(d, x, y))
PERIGEE_FUNCTOR2(FTanhGradOf, tanh_grad(d, y, x))
PERIGEE_FUNCTOR2(FSigmoidGrad, sigmoid_grad(d, x, y))
PERIGEE_FUNCTOR2(FSigmoidGradOf, sigmoid_grad(d, y, x))
PERIGEE_FUNCTOR2(FCopysign, hn::CopySign(x, y))
PERIGEE_FUNCTOR2(FCopysignOf, hn::CopySign(y, x))
PERIGEE_FUNCTOR2(FAnd, hn::And(x, y))
PERIGEE_FUNCTOR2(FOr, hn::Or(x, y))
PERIGEE_FUNCTOR2(FXor, hn::Xor(x, y))
template <class First, class Second>
struct FPair {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V a, V b) const {
    return Second()(d, First()(d, x, a), b);
  }
};
template <class First, class Second>
struct FJoin {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V a, V b) const {
    return Second()(d, x, First()(d, a, b));
  }
};
PERIGEE_FUNCTOR3(FWhere, hn::IfThenElse(as_mask(a), x, b))
PERIGEE_FUNCTOR3(FWhereOf, hn::IfThenElse(as_mask(a), b, x))
PERIGEE_FUNCTOR3(FWhereMask, hn::IfThenElse(as_mask(x), a, b))
PERIGEE_FUNCTOR3(FLerp, lerp(d, x, a, b))

static void stream_block(const Step* step, Memory memory, int64_t i, PERIGEE_BLOCK) {
  const WideTag d;
  float* p = reinterpret_cast<float*>(memory[step->a]) + i;
#define PERIGEE_APPLY(x, k) hn::Stream(x, d, p + k * int64_t(hn::Lanes(d)));
  PERIGEE_EACH(PERIGEE_APPLY)
#undef PERIGEE_APPLY
  PERIGEE_NEXT_BLOCK;
}

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
    case ChainOp::kWhere:
      return TernaryCode<FWhere, Bools, Floats>::codes();
    case ChainOp::kWhereOf:
      return TernaryCode<FWhereOf, Bools, Floats>::codes();
    case ChainOp::kWhereMask:
      return TernaryCode<FWhereMask, Floats, Floats>::codes();
    case ChainOp::kLerp:
      return TernaryCode<FLerp, Floats, Floats>::codes();
#define X(name, ...)     \
  case ChainOp::k##name: \
    return UnaryCode<F##name>::codes();
      PERIGEE_CHAIN_UNARY(X)
#undef X
#define X(name)          \
  case ChainOp::k##name: \
    return BinaryCode<F##name, Floats>::codes();
      PERIGEE_CHAIN_BINARY(X)
#undef X
#define X(name)          \
  case ChainOp::k##name: \
    return BinaryCode<F##name, Bools>::codes();
      PERIGEE_CHAIN_LOGIC(X)
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

void fill_basic(Step& step, ChainOp op) {
  const Codes codes = basic_codes(op);
  step.block = reinterpret_cast<Step::Code>(codes.block[int(step.a_scalar) | int(step.b_scalar) << 1]);
  step.part = reinterpret_cast<Step::Code>(codes.part);
  step.one = reinterpret_cast<Step::Code>(codes.one);
}

void flush_streams() { hwy::FlushStream(); }

int64_t block_size() { return int64_t(8 * hn::Lanes(WideTag())); }

void run_steps(const Step* steps, Memory memory, int64_t n, bool repeatable) {
  if (n == 1) return reinterpret_cast<OneCode>(steps->one)(steps, memory, hn::Undefined(OneTag()));
  const int64_t lanes = int64_t(hn::Lanes(WideTag())), size = 8 * lanes;
  const Wide none = hn::Zero(WideTag());
  int64_t i = 0;
  const auto block = reinterpret_cast<BlockCode>(steps->block);
  for (; i + size <= n; i += size) block(steps, memory, i, none, none, none, none, none, none, none, none);
  if (repeatable && i > 0 && i < n)
    return block(steps, memory, n - size, none, none, none, none, none, none, none, none);
  for (; i < n; i += lanes)
    reinterpret_cast<PartCode>(steps->part)(steps, memory, i, size_t(std::min(lanes, n - i)), none);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
namespace {

HWY_EXPORT(fill_basic);
HWY_EXPORT(block_size);
HWY_EXPORT(run_steps);
HWY_EXPORT(flush_streams);

bool is_math(ChainOp op) { return op >= ChainOp::kExp && op <= ChainOp::kLogsigmoid; }

}  // namespace

void set_code(Step& step, ChainOp op) {
  if (is_math(op)) return set_math_code(step, op);
  HWY_DYNAMIC_DISPATCH(fill_basic)(step, op);
}

int chain_cost(ChainOp op) {
  if (is_math(op)) return 250;
  switch (op) {
    case ChainOp::kDiv:
    case ChainOp::kDivOf:
    case ChainOp::kSqrt:
    case ChainOp::kRsqrt:
    case ChainOp::kReciprocal:
      return 80;
    default:
      return op >= ChainOp::kLoadThenAdd ? 45 : 25;
  }
}

int64_t chain_block() { return HWY_DYNAMIC_DISPATCH(block_size)(); }

void finish_streams() { HWY_DYNAMIC_DISPATCH(flush_streams)(); }

void run_chain(const Step* steps, char* const* memory, int64_t n, bool repeatable) {
  HWY_DYNAMIC_DISPATCH(run_steps)(steps, memory, n, repeatable);
}

}  // namespace pg::cpu
#endif
