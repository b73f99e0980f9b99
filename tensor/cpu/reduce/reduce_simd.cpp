#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce/reduce_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/reduce/reduce_simd.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/cpu/wrap.h"

#include <algorithm>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
using TotalOf = std::conditional_t<kIsFloat<T>, double, int64_t>;

// Returns the larger of two, or NaN if either is NaN (as in PyTorch). Without branches: the processor has one
// instruction for the comparison.
template <class T>
HWY_INLINE T larger(T a, T x) {
  const T best = x > a ? x : a;
  return HWY_LIKELY(x == x) ? best : x;
}
template <class T>
HWY_INLINE T smaller(T a, T x) {
  const T best = x < a ? x : a;
  return HWY_LIKELY(x == x) ? best : x;
}

// `step` adds one element to an accumulator, `join` combines two accumulators. Acc is the type of an accumulator within
// a block.
// Combines all elements by one operation.
template <class Two>
struct Fold {
  template <class T>
  using Acc = std::conditional_t<kIsFloat<T>, T, int64_t>;
  template <class A>
  static HWY_INLINE A init() {
    return Two::kNeutral;
  }
  template <class A, class T>
  static HWY_INLINE A step(A a, T x) {
    return Two::of(a, A(x));
  }
  template <class A>
  static HWY_INLINE A join(A a, A b) {
    return Two::of(a, b);
  }
  template <class V>
  static HWY_INLINE V vec_step(V a, V x) {
    return Two::of_vectors(a, x);
  }
  template <class V>
  static HWY_INLINE V vec_join(V a, V b) {
    return Two::of_vectors(a, b);
  }
};
struct Plus {
  static constexpr int kNeutral = 0;
  template <class A>
  static HWY_INLINE A of(A a, A b) {
    return wrapped_sum(a, b);
  }
  template <class V>
  static HWY_INLINE V of_vectors(V a, V b) {
    return hn::Add(a, b);
  }
};
struct Times {
  static constexpr int kNeutral = 1;
  template <class A>
  static HWY_INLINE A of(A a, A b) {
    return wrapped_product(a, b);
  }
  template <class V>
  static HWY_INLINE V of_vectors(V a, V b) {
    return hn::Mul(a, b);
  }
};
using Sum = Fold<Plus>;
using Prod = Fold<Times>;
struct SumSquares : Sum {
  template <class A, class T>
  static HWY_INLINE A step(A a, T x) {
    return wrapped_sum(a, wrapped_product(A(x), A(x)));
  }
  template <class V>
  static HWY_INLINE V vec_step(V a, V x) {
    return hn::MulAdd(x, x, a);
  }
};
struct SumNumbers : Sum {
  template <class A, class T>
  static HWY_INLINE A step(A a, T x) {
    return x == x ? Sum::step(a, x) : a;
  }
  template <class V>
  static HWY_INLINE V vec_step(V a, V x) {
    return hn::Add(a, hn::IfThenElseZero(hn::Eq(x, x), x));
  }
};
template <bool kMax>
struct Extreme {
  template <class T>
  using Acc = T;
  template <class A>
  static HWY_INLINE A init() {
    using Limits = std::numeric_limits<A>;
    if constexpr (kIsFloat<A>)
      return kMax ? -Limits::infinity() : Limits::infinity();
    else
      return kMax ? Limits::lowest() : Limits::max();
  }
  template <class A, class T>
  static HWY_INLINE A step(A a, T x) {
    return join<A>(a, x);
  }
  template <class A>
  static HWY_INLINE A join(A a, A b) {
    return kMax ? larger(a, b) : smaller(a, b);
  }
  template <class V>
  static HWY_INLINE V vec_step(V a, V x) {  // the result is NaN if either is
    if constexpr (kIsFloat<hn::TFromV<V>>)
      return hn::IfThenElse(hn::IsNaN(x), x, kMax ? max_or_second(x, a) : min_or_second(x, a));
    else
      return kMax ? hn::Max(a, x) : hn::Min(a, x);
  }
  template <class V>
  static HWY_INLINE V vec_join(V a, V b) {
    return vec_step(a, b);
  }
};
using Max = Extreme<true>;
using Min = Extreme<false>;

// Counts the elements that are not zero, including NaN. A block has fewer elements than an int32 can count.
struct Count {
  template <class T>
  using Acc = int32_t;
  template <class A>
  static HWY_INLINE A init() {
    return 0;
  }
  template <class A, class T>
  static HWY_INLINE A step(A a, T x) {
    return a + (x != 0);
  }
  template <class A>
  static HWY_INLINE A join(A a, A b) {
    return a + b;
  }
};

template <class Op, class T>
constexpr bool kVector = kIsFloat<T> && !std::is_same_v<Op, Count>;
template <class Op>
constexpr bool kExtreme = std::is_same_v<Op, Max> || std::is_same_v<Op, Min>;
template <class Op, class T>
constexpr bool kVectorRows = kVector<Op, T> || kExtreme<Op>;
template <class Op, class T>
using OpTotal = std::conditional_t<std::is_same_v<Op, Count>, int64_t, TotalOf<T>>;

template <class T>
HWY_INLINE T& field(Total& t) {
  if constexpr (std::is_same_v<T, double>)
    return t.f;
  else
    return t.i;
}
template <class T>
HWY_INLINE T field(const Total& t) {
  if constexpr (std::is_same_v<T, double>)
    return t.f;
  else
    return t.i;
}
template <class Op, class T, class A>
HWY_INLINE void take(Total& total, A value) {
  using F = OpTotal<Op, T>;
  field<F>(total) = Op::join(field<F>(total), F(value));
}

// Combines the two halves of v.
template <class Op, class D, class V>
HWY_INLINE hn::TFromD<D> join_halves([[maybe_unused]] D d, V v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return join_halves<Op>(half, Op::vec_join(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// Combines all lanes of v.
template <class Op, class D, class V>
HWY_INLINE hn::TFromD<D> join_lanes(D d, V v) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_base_of_v<Sum, Op>) return hn::GetLane(hn::SumOfLanes(d, v));
  if constexpr (kExtreme<Op>) {
    if (!hn::AllFalse(d, hn::IsNaN(v))) return std::numeric_limits<T>::quiet_NaN();
    return hn::GetLane(std::is_same_v<Op, Max> ? hn::MaxOfLanes(d, v) : hn::MinOfLanes(d, v));
  }
  return join_halves<Op>(d, v);
}

// Fetches the `bytes` two pages after p.
HWY_INLINE void fetch_ahead(const void* p, int64_t bytes) {
  constexpr int64_t kAhead = 8192, kLine = 64;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const char*>(p) + kAhead + at);
}

// Sets the extreme of a block. Returns false when the block may contain NaN or infinity.
template <class Op, bool kFetch, class T>
HWY_INLINE bool fast_extreme(const T* HWY_RESTRICT p, int64_t n, T* out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  auto a = hn::LoadU(d, p), b = a, c = a, e = a;
  auto s = zero, t = zero;  // sums of x * 0, which are NaN if a NaN or infinity occurred
  const auto pick = [](auto x, auto y) HWY_ATTR { return std::is_same_v<Op, Max> ? hn::Max(x, y) : hn::Min(x, y); };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    if (kFetch) fetch_ahead(p + i, 4 * lanes * int64_t(sizeof(T)));
    const auto x0 = hn::LoadU(d, p + i), x1 = hn::LoadU(d, p + i + lanes);
    const auto x2 = hn::LoadU(d, p + i + 2 * lanes), x3 = hn::LoadU(d, p + i + 3 * lanes);
    a = pick(a, x0), b = pick(b, x1), c = pick(c, x2), e = pick(e, x3);
    s = hn::MulAdd(hn::Add(x0, x1), zero, s);
    t = hn::MulAdd(hn::Add(x2, x3), zero, t);
  }
  for (; i + lanes <= n; i += lanes) a = pick(a, hn::LoadU(d, p + i)), s = hn::MulAdd(hn::LoadU(d, p + i), zero, s);
  if (!hn::AllTrue(d, hn::Eq(hn::Add(s, t), zero))) return false;
  T best = join_lanes<Op>(d, pick(pick(a, b), pick(c, e)));
  for (; i < n; ++i) best = Op::join(best, p[i]);
  *out = best;
  return true;
}

template <class Op, class T>
HWY_INLINE T short_block(const T* HWY_RESTRICT p, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Set(d, Op::template init<T>());
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) a = Op::vec_step(a, hn::LoadU(d, p + i));
  T result = join_lanes<Op>(d, a);
  for (; i < n; ++i) result = Op::step(result, p[i]);
  return result;
}

// Combines n elements in eight vector accumulators, and these in a fixed tree.
template <class Op, bool kFetch, class T>
HWY_INLINE T vector_block(const T* HWY_RESTRICT p, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto init = hn::Set(d, Op::template init<T>());
  if (n < 8 * lanes) return short_block<Op>(p, n);
  auto a0 = init, a1 = init, a2 = init, a3 = init, a4 = init, a5 = init, a6 = init, a7 = init;
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    const T* q = p + i;
    if (kFetch) fetch_ahead(q, 8 * lanes * int64_t(sizeof(T)));
    a0 = Op::vec_step(a0, hn::LoadU(d, q));
    a1 = Op::vec_step(a1, hn::LoadU(d, q + lanes));
    a2 = Op::vec_step(a2, hn::LoadU(d, q + 2 * lanes));
    a3 = Op::vec_step(a3, hn::LoadU(d, q + 3 * lanes));
    a4 = Op::vec_step(a4, hn::LoadU(d, q + 4 * lanes));
    a5 = Op::vec_step(a5, hn::LoadU(d, q + 5 * lanes));
    a6 = Op::vec_step(a6, hn::LoadU(d, q + 6 * lanes));
    a7 = Op::vec_step(a7, hn::LoadU(d, q + 7 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a0 = Op::vec_step(a0, hn::LoadU(d, p + i));
  a0 = Op::vec_join(Op::vec_join(a0, a1), Op::vec_join(a2, a3));
  a4 = Op::vec_join(Op::vec_join(a4, a5), Op::vec_join(a6, a7));
  T result = join_lanes<Op>(d, Op::vec_join(a0, a4));
  for (; i < n; ++i) result = Op::step(result, p[i]);
  return result;
}

// The end of vector_block. In a block shorter than eight vectors all but the first are 0, which changes no sum.
template <class Op>
void join_sums(Total* total, const float* sums, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto two = [&](int k) HWY_ATTR {
    return Op::vec_join(hn::LoadU(d, sums + k * lanes), hn::LoadU(d, sums + (k + 1) * lanes));
  };
  const auto low = Op::vec_join(two(0), two(2)), high = Op::vec_join(two(4), two(6));
  float result = join_lanes<Op>(d, Op::vec_join(low, high));
  for (int64_t i = 0; i < n % lanes; ++i) result = Op::step(result, sums[8 * lanes + i]);
  take<Op, float>(*total, result);
}

template <class Op, bool kFetch, class T>
HWY_INLINE typename Op::template Acc<T> block(const T* HWY_RESTRICT p, int64_t n) {
  using A = typename Op::template Acc<T>;
  if constexpr (kVector<Op, T>) {
    T extreme;
    if (kExtreme<Op> && n >= 64 && fast_extreme<Op, kFetch>(p, n, &extreme)) return extreme;
    if (n >= 16) return vector_block<Op, kFetch>(p, n);
  }
  A a = Op::template init<A>();
  for (int64_t i = 0; i < n; ++i) a = Op::step(a, p[i]);
  return a;
}

// At most 64 steps per lane of the eight accumulators, so that short vectors do not round more than long ones.
template <class T>
constexpr int64_t kBlock = std::min<int64_t>(4096, 512 * int64_t(hn::MaxLanes(hn::ScalableTag<T>())));

template <class Op, class T, bool kFetch>
void runs(Total* totals, const void* data, int64_t n, int64_t count, int64_t stride) {
  for (int64_t k = 0; k < count; ++k) {
    const T* p = static_cast<const T*>(data) + k * stride;
    for (int64_t i = 0; i < n; i += kBlock<T>)
      take<Op, T>(totals[k], block<Op, kFetch>(p + i, std::min(kBlock<T>, n - i)));
  }
}

// The number of rows per pass. More rows would share one set of the first-level cache when they are a page apart.
constexpr int64_t kRowsAtOnce = 4;

// acc[j] combines the elements of kRowsAtOnce rows.
template <class Op, class T>
HWY_INLINE void several_rows(T* HWY_RESTRICT acc, const T* HWY_RESTRICT p, int64_t stride, int64_t width) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    const T* q = p + j;
    auto a = hn::LoadU(d, acc + j);
    auto b = hn::Set(d, Op::template init<T>());
    for (int r = 0; r < kRowsAtOnce; r += 2) {
      a = Op::vec_step(a, hn::LoadU(d, q + r * stride));
      b = Op::vec_step(b, hn::LoadU(d, q + (r + 1) * stride));
    }
    hn::StoreU(Op::vec_join(a, b), d, acc + j);
  }
  for (; j < width; ++j)
    for (int r = 0; r < kRowsAtOnce; ++r) acc[j] = Op::step(acc[j], p[r * stride + j]);
}

template <class Op, class T, class A>
HWY_INLINE void one_row(A* HWY_RESTRICT acc, const T* HWY_RESTRICT p, int64_t width) {
  int64_t j = 0;
  if constexpr (kVectorRows<Op, T>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = hn::Lanes(d);
    for (; j + lanes <= width; j += lanes)
      hn::StoreU(Op::vec_step(hn::LoadU(d, acc + j), hn::LoadU(d, p + j)), d, acc + j);
  }
  for (; j < width; ++j) acc[j] = Op::step(acc[j], p[j]);
}

template <class Op, class T, class A>
HWY_INLINE void add_rows(A* acc, const T* p, int64_t stride, int64_t count, int64_t width) {
  int64_t r = 0;
  if constexpr (kVectorRows<Op, T>)
    for (; r + kRowsAtOnce <= count; r += kRowsAtOnce) several_rows<Op, T>(acc, p + r * stride, stride, width);
  for (; r < count; ++r) one_row<Op, T, A>(acc, p + r * stride, width);
}

template <class Op, class T>
void rows(Total* totals, const void* data, int64_t stride, int64_t count, int64_t width) {
  using A = typename Op::template Acc<T>;
  alignas(64) A acc[kReduceTile];
  std::fill(acc, acc + width, Op::template init<A>());
  add_rows<Op>(acc, static_cast<const T*>(data), stride, count, width);
  for (int64_t j = 0; j < width; ++j) take<Op, T>(totals[j], acc[j]);
}

template <class Op, class T>
void join(Total* totals, const Total* more, int64_t n) {
  using F = OpTotal<Op, T>;
  for (int64_t j = 0; j < n; ++j) take<Op, T>(totals[j], field<F>(more[j]));
}

template <class Op, class T>
ReduceLoops loops_for() {
  using F = OpTotal<Op, T>;
  ReduceLoops loops{{}, runs<Op, T, false>, runs<Op, T, true>, rows<Op, T>, join<Op, T>, nullptr, kBlock<T>};
  if constexpr (std::is_same_v<T, float> && std::is_base_of_v<Sum, Op>) loops.join_sums = join_sums<Op>;
  field<F>(loops.init) = Op::template init<F>();
  return loops;
}

template <class Op>
ReduceLoops loops_of_type(DType t) {
  switch (t) {
    case DType::kUInt8:
      return loops_for<Op, uint8_t>();
    case DType::kInt8:
      return loops_for<Op, int8_t>();
    case DType::kInt32:
      return loops_for<Op, int32_t>();
    case DType::kInt64:
      return loops_for<Op, int64_t>();
    case DType::kFloat32:
      return loops_for<Op, float>();
    default:
      return loops_for<Op, double>();
  }
}

ReduceLoops find_loops(ReduceOp op, DType t) {
  switch (op) {
    case ReduceOp::kSum:
      return loops_of_type<Sum>(t);
    case ReduceOp::kProd:
      return loops_of_type<Prod>(t);
    case ReduceOp::kMax:
      return loops_of_type<Max>(t);
    case ReduceOp::kMin:
      return loops_of_type<Min>(t);
    case ReduceOp::kCount:
      return loops_of_type<Count>(t);
    case ReduceOp::kSumSquares:
      return loops_of_type<SumSquares>(t);
    default:
      return loops_of_type<SumNumbers>(t);
  }
}

template <class Op, class T, class A = T>
void rows_in_type(void* acc, bool start, const void* p, int64_t stride, int64_t count, int64_t width) {
  A* const to = static_cast<A*>(acc);
  if (start) std::fill(to, to + width, Op::template init<A>());
  add_rows<Op>(to, static_cast<const T*>(p), stride, count, width);
}

template <class Op>
PlainRows plain_of_type(DType t) {
  if (t == DType::kFloat32) return rows_in_type<Op, float>;
  if (t == DType::kFloat64) return rows_in_type<Op, double>;
  if constexpr (kExtreme<Op>) {
    if (t == DType::kBool || t == DType::kUInt8) return rows_in_type<Op, uint8_t>;
    if (t == DType::kInt8) return rows_in_type<Op, int8_t>;
    if (t == DType::kInt32) return rows_in_type<Op, int32_t>;
    if (t == DType::kInt64) return rows_in_type<Op, int64_t>;
  } else if constexpr (std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>) {
    if (t == DType::kBool || t == DType::kUInt8) return rows_in_type<Op, uint8_t, int64_t>;
    if (t == DType::kInt8) return rows_in_type<Op, int8_t, int64_t>;
    if (t == DType::kInt32) return rows_in_type<Op, int32_t, int64_t>;
    if (t == DType::kInt64) return rows_in_type<Op, int64_t>;
  }
  return nullptr;
}

PlainRows find_plain_rows(ReduceOp op, DType t) {
  switch (op) {
    case ReduceOp::kSum:
      return plain_of_type<Sum>(t);
    case ReduceOp::kProd:
      return plain_of_type<Prod>(t);
    case ReduceOp::kMax:
      return plain_of_type<Max>(t);
    case ReduceOp::kMin:
      return plain_of_type<Min>(t);
    case ReduceOp::kSumSquares:
      return plain_of_type<SumSquares>(t);
    case ReduceOp::kSumNumbers:
      return plain_of_type<SumNumbers>(t);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(find_loops);
HWY_EXPORT(find_plain_rows);
PlainRows plain_rows(ReduceOp op, DType type) { return HWY_DYNAMIC_DISPATCH(find_plain_rows)(op, type); }
ReduceLoops reduce_loops(ReduceOp op, DType compute) { return HWY_DYNAMIC_DISPATCH(find_loops)(op, compute); }
}  // namespace pg::cpu
#endif
