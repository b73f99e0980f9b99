#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/norm/softmax_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "tensor/cpu/elementary-inl.h"
#include "tensor/cpu/norm/softmax_columns-inl.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {  // templates of other files have the same names

// e^t for t <= 0 or NaN.
HWY_INLINE hn::Vec<Tag<double>> exp_nonpositive(Tag<double> d, hn::Vec<Tag<double>> t) { return elementary::exp(d, t); }
// The same for float; 0 when the result would be subnormal.
HWY_INLINE hn::Vec<Tag<float>> exp_nonpositive(Tag<float> d, hn::Vec<Tag<float>> t) {
  using V = hn::Vec<Tag<float>>;
  // Rounds t / ln(2) to a whole number n with a magic constant: n + 127 is then in the lowest bits of the mantissa.
  const V magic = hn::Set(d, 0x1.8p23f + 127.0f);
  const V shifted = hn::MulAdd(max_or_second(hn::Set(d, -88.02f), t), hn::Set(d, 1.442695041f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), max_or_second(hn::Set(d, -88.02f), t));
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const V p = polynomial(d, r, hn::Set(d, 1.393368836e-03f), 8.363205468e-03f, 4.166646457e-02f, 1.666657682e-01f,
                         5.000000014e-01f, 1.0f, 1.0f);
  const IntOf<Tag<float>> di;
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Returns the largest element of a row. If the row contains NaN, the result is any number or NaN; the sum of
// exponentials then becomes NaN.
template <class T>
HWY_INLINE T row_max(const T* x, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Set(d, -kInfinity<T>), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, x + i));
    b = hn::Max(b, hn::LoadU(d, x + i + lanes));
    c = hn::Max(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Max(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Max(a, hn::LoadU(d, x + i));
  if (i < n) b = hn::Max(b, load_part(d, x + i, n - i, -kInfinity<T>));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

// Returns sum(exp(x - top)). Stores the terms in y unless it is null. Calls beside(i) before it stores a whole vector
// at i. Fetches the row after this one meanwhile: rows of a page are too short for the hardware to see it coming.
template <class T, class Beside>
HWY_INLINE T exp_sum(const T* x, T* y, T top, int64_t n, const Beside& beside) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, top);
  auto a = hn::Zero(d), b = a;
  int64_t i = 0;
  const auto term = [&](int64_t at) HWY_ATTR {
    const auto e = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + at), m));
    beside(at);
    if (y) hn::StoreU(e, d, y + at);
    return e;
  };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    __builtin_prefetch(x + n + i);
    if (y) __builtin_prefetch(y + n + i, 1);
    a = hn::Add(a, term(i));
    b = hn::Add(b, term(i + lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Add(a, term(i));
  if (i < n) {
    const auto e = exp_nonpositive(d, hn::Sub(load_part(d, x + i, n - i, T(-1e30)), m));
    if (y) store_part(d, e, y + i, n - i);
    b = hn::Add(b, hn::IfThenElseZero(hn::FirstN(d, size_t(n - i)), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}
template <class T>
HWY_INLINE T exp_sum(const T* x, T* y, T top, int64_t n) {
  return exp_sum(x, y, top, n, [](int64_t) HWY_ATTR {});
}

// y = x * factor + term
template <class T>
HWY_INLINE void scale_row(const T* x, T* y, T factor, T term, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor), t = hn::Set(d, term);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), f, t), d, y + i);
  if (i < n) store_part(d, hn::MulAdd(load_part(d, x + i, n - i), f, t), y + i, n - i);
}

// Writes f(i) of a row past the caches. n is a multiple of the lanes, and y is aligned to them.
template <class T, class F>
HWY_INLINE void stream_row(T* y, int64_t n, const F& f) {
  const Tag<T> d;
  for (int64_t i = 0; i < n; i += hn::Lanes(d)) hn::Stream(f(i), d, y + i);
}

// Long rows are processed in blocks with polls between them, so that they can be interrupted.
constexpr int64_t kBlock = 1 << 20;

template <class T>
HWY_INLINE T long_max(const T* x, int64_t n) {
  if (n <= kBlock) return row_max(x, n);
  T top = -kInfinity<T>;
  in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) HWY_ATTR {
    const T m = row_max(x + begin, end - begin);
    if (m > top || m != m) top = m;
  });
  return top;
}

template <class T>
HWY_INLINE T long_exp_sum(const T* x, T* y, T top, int64_t n) {
  if (n <= kBlock) return exp_sum(x, y, top, n);
  double sum = 0;
  in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) HWY_ATTR {
    sum += double(exp_sum(x + begin, y ? y + begin : nullptr, top, end - begin));
  });
  return T(sum);
}

// The same for short rows, past the caches. A row is written while the exponentials of the next are computed: the
// processor holds few such stores, and would wait for memory.
template <bool kLog, class T>
HWY_INLINE void stream_rows(const T* x, T* y, int64_t count, int64_t n) {
  const Tag<T> d;
  const Scratch<T> scratch(kStreamedRow);
  T* const terms = scratch;
  const T* from = terms;  // the row that is to be written: its terms, or its elements for a logarithm
  auto shift = hn::Zero(d), factor = shift;
  const auto write = [&](T* to, int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, from + i);
    hn::Stream(kLog ? hn::Sub(hn::Sub(v, shift), factor) : hn::Mul(v, factor), d, to + i);
  };
  for (int64_t r = 0; r < count; ++r, x += n, y += n) {
    const T top = row_max(x, n);
    T* const keep = kLog ? nullptr : terms;
    const T sum =
        r == 0 ? exp_sum(x, keep, top, n) : exp_sum(x, keep, top, n, [&](int64_t i) HWY_ATTR { write(y - n, i); });
    if (std::fabs(top) < kInfinity<T>) {
      if (kLog) from = x;
      shift = hn::Set(d, top);
      factor = hn::Set(d, kLog ? std::log(sum) : T(1) / sum);
    } else {
      std::fill(terms, terms + n, std::numeric_limits<T>::quiet_NaN());
      from = terms;
      shift = hn::Zero(d);
      factor = hn::Set(d, kLog ? T(0) : T(1));
    }
  }
  for (int64_t i = 0; i < n; i += hn::Lanes(d)) write(y - n, i);
  hwy::FlushStream();
}
template <class T>
void stream_rows(bool log, const T* x, T* y, int64_t count, int64_t n) {
  if (log)
    stream_rows<true>(x, y, count, n);
  else
    stream_rows<false>(x, y, count, n);
}

template <class T>
void rows(bool log, const T* x, T* y, int64_t count, int64_t n) {
  for (int64_t r = 0; r < count; ++r, x += n, y += n) {
    const T top = long_max(x, n);
    if (!(std::fabs(top) < kInfinity<T>)) {
      std::fill(y, y + n, std::numeric_limits<T>::quiet_NaN());
    } else if (log) {
      const T sum = long_exp_sum<T>(x, nullptr, top, n), shift = std::log(sum);
      const Tag<T> d;
      const auto m = hn::Set(d, top), l = hn::Set(d, shift);
      in_polled_blocks(n, kBlock, [&](int64_t i, int64_t end) HWY_ATTR {
        for (; i + int64_t(hn::Lanes(d)) <= end; i += hn::Lanes(d))
          hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), m), l), d, y + i);
        for (; i < end; ++i) y[i] = x[i] - top - shift;
      });
    } else {
      const T sum = long_exp_sum(x, y, top, n);
      in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) HWY_ATTR {
        scale_row(y + begin, y + begin, T(1) / sum, T(0), end - begin);
      });
    }
  }
}

template <class T>
void log_sum_exp(const T* x, T* out, T* rest, int64_t count, int64_t n) {
  const hn::CappedTag<T, 1> d;
  for (int64_t r = 0; r < count; ++r, x += n) {
    const T top = long_max(x, n);
    const bool finite = std::fabs(top) < kInfinity<T>;
    const T log = finite ? std::log(long_exp_sum<T>(x, nullptr, top, n)) : T(0);
    if (!finite && std::any_of(x, x + n, [](T v) { return v != v; }))
      out[r] = std::numeric_limits<T>::quiet_NaN();
    else
      out[r] = top + log;
    if (rest) rest[r] = hn::GetLane(rounded_off(d, hn::Set(d, top), hn::Set(d, log), hn::Set(d, out[r])));
  }
}

template <class T>
void scaled_exp(const T* x, T lse, T rest, T a, T b, T* dx, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto l = hn::Set(d, lse), vr = hn::Set(d, rest), va = hn::Set(d, a), vb = hn::Set(d, b);
  const auto value = [&](hn::Vec<Tag<T>> v)
                         HWY_ATTR { return hn::MulSub(va, elementary::exp(d, hn::Sub(hn::Sub(v, l), vr)), vb); };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(value(hn::LoadU(d, x + i)), d, dx + i);
  if (i < n) store_part(d, value(load_part(d, x + i, n - i)), dx + i, n - i);
}

// Returns the sum of y dy (softmax) or of dy (log_softmax) along a row.
template <class T>
HWY_INLINE T backward_sum(bool log, const T* y, const T* dy, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto u = hn::LoadU(d, dy + i), v = hn::LoadU(d, dy + i + lanes);
    a = log ? hn::Add(a, u) : hn::MulAdd(u, hn::LoadU(d, y + i), a);
    b = log ? hn::Add(b, v) : hn::MulAdd(v, hn::LoadU(d, y + i + lanes), b);
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; i < n; ++i) sum += log ? dy[i] : dy[i] * y[i];
  return sum;
}

template <class T>
void stream_rows_backward(bool log, const T* y, const T* dy, T* dx, int64_t count, int64_t n) {
  const Tag<T> d;
  for (int64_t r = 0; r < count; ++r, y += n, dy += n, dx += n) {
    const auto sum = hn::Set(d, backward_sum(log, y, dy, n));
    stream_row(dx, n, [&](int64_t i) HWY_ATTR {
      return backward_value(d, log, hn::LoadU(d, y + i), hn::LoadU(d, dy + i), sum);
    });
  }
  hwy::FlushStream();
}

template <class T>
void rows_backward(bool log, const T* y, const T* dy, T* dx, int64_t count, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = 0; r < count; ++r, y += n, dy += n, dx += n) {
    const auto sum = hn::Set(d, backward_sum(log, y, dy, n));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(backward_value(d, log, hn::LoadU(d, y + i), hn::LoadU(d, dy + i), sum), d, dx + i);
    if (i < n) {
      const auto last = backward_value(d, log, load_part(d, y + i, n - i), load_part(d, dy + i, n - i), sum);
      store_part(d, last, dx + i, n - i);
    }
  }
}

// Rows of at most so many elements are computed as columns, so many rows at a time.
constexpr int64_t kShortRow = 12, kShortRows = 64;

template <class T>
struct ShortRows {
  T values[kShortRow * kShortRows];
  void read(const T* rows, int64_t count, int64_t n) {
    for (int64_t c = 0; c < n; ++c)
      for (int64_t r = 0; r < count; ++r) values[c * kShortRows + r] = rows[r * n + c];
  }
  void write(T* rows, int64_t count, int64_t n) const {
    for (int64_t c = 0; c < n; ++c)
      for (int64_t r = 0; r < count; ++r) rows[r * n + c] = values[c * kShortRows + r];
  }
};

template <class T>
void all_rows(bool log, const T* x, T* y, int64_t count, int64_t n) {
  if (n > kShortRow) return rows(log, x, y, count, n);
  ShortRows<T> from, to;
  in_polled_blocks(count, kShortRows, [&](int64_t begin, int64_t end) {
    from.read(x + begin * n, end - begin, n);
    columns(log, from.values, to.values, n, kShortRows, end - begin);
    to.write(y + begin * n, end - begin, n);
  });
}

template <class T>
void all_rows_backward(bool log, const T* y, const T* dy, T* dx, int64_t count, int64_t n) {
  if (n > kShortRow) return rows_backward(log, y, dy, dx, count, n);
  ShortRows<T> from, gradient, to;
  in_polled_blocks(count, kShortRows, [&](int64_t begin, int64_t end) {
    from.read(y + begin * n, end - begin, n);
    gradient.read(dy + begin * n, end - begin, n);
    columns_backward(log, from.values, gradient.values, to.values, n, kShortRows, end - begin);
    to.write(dx + begin * n, end - begin, n);
  });
}

template <class T>
void all_log_sum_exp(const T* x, T* out, T* rest, int64_t count, int64_t n) {
  if (n > kShortRow) return log_sum_exp(x, out, rest, count, n);
  ShortRows<T> from;
  in_polled_blocks(count, kShortRows, [&](int64_t begin, int64_t end) {
    from.read(x + begin * n, end - begin, n);
    columns_log_sum_exp(from.values, out + begin, rest ? rest + begin : nullptr, n, kShortRows, end - begin);
  });
}

template <class T>
SoftmaxLoops<T> loops_of() {
  return {all_rows<T>,   stream_rows<T>, all_rows_backward<T>,   stream_rows_backward<T>, all_log_sum_exp<T>,
          scaled_exp<T>, columns<T>,     columns_log_sum_exp<T>, columns_scaled_exp<T>,   columns_backward<T>};
}

}  // namespace

SoftmaxLoops<float> float_softmax() { return loops_of<float>(); }
SoftmaxLoops<double> double_softmax() { return loops_of<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(float_softmax);
HWY_EXPORT(double_softmax);
template <>
SoftmaxLoops<float> softmax_loops() {
  return HWY_DYNAMIC_DISPATCH(float_softmax)();
}
template <>
SoftmaxLoops<double> softmax_loops() {
  return HWY_DYNAMIC_DISPATCH(double_softmax)();
}
}  // namespace pg::cpu
#endif
