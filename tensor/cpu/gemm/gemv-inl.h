// Products with few rows of x, in one pass over w as it is stored. Include after highway.h, once per target. W is the
// type of w; x, the sums and y are float64 if it is, else float32.
#if defined(PERIGEE_GEMV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_GEMV_INL_H
#undef PERIGEE_GEMV_INL_H
#else
#define PERIGEE_GEMV_INL_H
#endif

#include <algorithm>
#include <type_traits>

#include "hwy/highway.h"
#include "tensor/cpu/gemm/gemv_simd.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class W>
using SumTag = hn::ScalableTag<SumOf<W>>;
template <class W>
using SumVec = hn::Vec<SumTag<W>>;

// Up to this many rows a tile is eight columns wide. With AVX-512 the accumulators then use at most 24 of 32 registers.
constexpr int kWideRows = HWY_TARGET == HWY_AVX3 ? 3 : 1;

// The first `count` elements of a vector, and zeros.
template <class D, class W>
HWY_INLINE hn::Vec<D> load_first(D d, const W* from, int64_t count) {
  if constexpr (std::is_same_v<W, hn::TFromD<D>>) {
    return load_part(d, from, count);
  } else {
    constexpr int64_t kLanes = hn::MaxLanes(D());
    W buffer[kLanes] = {};
    if (count > kLanes) __builtin_unreachable();  // or GCC warns of reads beyond a single lane
    std::copy_n(from, count, buffer);
    return load(d, buffer);
  }
}

template <class T>
HWY_INLINE T finish(T sum, int64_t n, const Epilogue<T>& e) {
  const T v = e.bias ? sum + e.bias[n] : sum;
  return e.relu && v <= 0 ? T(0) : v;
}

// Finishes sums of `count` consecutive columns. Not inlined: a copy for each accumulator of a tile takes minutes to
// compile.
template <class T>
HWY_NOINLINE void finish_columns(const T* sums, int64_t count, int64_t n, T* y, int64_t y_col, const Epilogue<T>& e) {
  for (int64_t i = 0; i < count; ++i) y[i * y_col] = finish(sums[i], n + i, e);
}

// Applies the epilogue to the lane sums of a, b, c and d: four consecutive columns of one row.
template <class V, class T>
HWY_INLINE void finish_4(V a, V b, V c, V d, int64_t n, T* y, int64_t y_col, const Epilogue<T>& e) {
  const hn::ScalableTag<T> tag;
  const T s[4] = {hn::GetLane(hn::SumOfLanes(tag, a)), hn::GetLane(hn::SumOfLanes(tag, b)),
                  hn::GetLane(hn::SumOfLanes(tag, c)), hn::GetLane(hn::SumOfLanes(tag, d))};
  finish_columns(s, 4, n, y, y_col, e);
}
#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

template <class Tag>
HWY_INLINE V4 fold_to_4([[maybe_unused]] Tag d, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(Tag()) > 4) {
    const hn::Half<Tag> h;
    return fold_to_4(h, hn::Add(hn::LowerHalf(h, v), hn::UpperHalf(h, v)));
  } else {
    return v;
  }
}

HWY_INLINE void finish_4(SumVec<float> a, SumVec<float> b, SumVec<float> c, SumVec<float> d, int64_t n, float* y,
                         int64_t y_col, const Epilogue<float>& e) {
  const SumTag<float> tag;
  const D4 d4;
  const V4 a4 = fold_to_4(tag, a), b4 = fold_to_4(tag, b), c4 = fold_to_4(tag, c), e4 = fold_to_4(tag, d);
  const V4 ab = hn::Add(hn::InterleaveLower(d4, a4, b4), hn::InterleaveUpper(d4, a4, b4));
  const V4 ce = hn::Add(hn::InterleaveLower(d4, c4, e4), hn::InterleaveUpper(d4, c4, e4));
  const V4 sums = hn::Add(hn::ConcatLowerLower(d4, ce, ab), hn::ConcatUpperUpper(d4, ce, ab));
  if (y_col == 1) {
    V4 v = sums;
    if (e.bias) v = hn::Add(v, hn::LoadU(d4, e.bias + n));
    if (e.relu) v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(d4)), v);
    hn::StoreU(v, d4, y);
    return;
  }
  HWY_ALIGN float s[4];
  hn::Store(sums, d4, s);
  finish_columns(s, 4, n, y, y_col, e);
}
#endif

// R rows of w (R is a multiple of 4) times M rows of x.
template <int M, int R, class W, class T>
HWY_INLINE void nt_tile(int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y, int64_t y_row,
                        int64_t y_col, const Epilogue<T>& e) {
  const SumTag<W> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  SumVec<W> acc[M][R];
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int r = 0; r < R; ++r) acc[m][r] = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    SumVec<W> xv[M];
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) xv[m] = hn::LoadU(d, x + m * ldx + i);
    PERIGEE_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto wv = load(d, w + r * ldw + i);
      PERIGEE_UNROLL
      for (int m = 0; m < M; ++m) acc[m][r] = hn::MulAdd(wv, xv[m], acc[m][r]);
    }
  }
  if (i < k) {
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) {
      const auto xv = load_part(d, x + m * ldx + i, k - i);
      PERIGEE_UNROLL
      for (int r = 0; r < R; ++r) acc[m][r] = hn::MulAdd(load_first(d, w + r * ldw + i, k - i), xv, acc[m][r]);
    }
  }
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int r = 0; r < R; r += 4)
    finish_4(acc[m][r], acc[m][r + 1], acc[m][r + 2], acc[m][r + 3], n + r, y + m * y_row + r * y_col, y_col, e);
}

// The product of two vectors. Its four sums do not wait for each other.
template <class W, class T>
HWY_INLINE T dot(int64_t k, const T* x, const W* w) {
  const SumTag<W> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= k; i += 4 * lanes) {
    a = hn::MulAdd(load(d, w + i), hn::LoadU(d, x + i), a);
    b = hn::MulAdd(load(d, w + i + lanes), hn::LoadU(d, x + i + lanes), b);
    c = hn::MulAdd(load(d, w + i + 2 * lanes), hn::LoadU(d, x + i + 2 * lanes), c);
    e = hn::MulAdd(load(d, w + i + 3 * lanes), hn::LoadU(d, x + i + 3 * lanes), e);
  }
  for (; i + lanes <= k; i += lanes) a = hn::MulAdd(load(d, w + i), hn::LoadU(d, x + i), a);
  if (i < k) b = hn::MulAdd(load_first(d, w + i, k - i), load_part(d, x + i, k - i), b);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

template <int M, class W, class T>
void nt_rows(int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y, int64_t y_row, int64_t y_col,
             const Epilogue<T>& e) {
  constexpr int kWide = M <= kWideRows ? 8 : 4;
  int64_t j = 0;
  for (; j + kWide <= n; j += kWide) nt_tile<M, kWide>(j, k, x, ldx, w + j * ldw, ldw, y + j * y_col, y_row, y_col, e);
  if (kWide == 8 && j + 4 <= n) {
    nt_tile<M, 4>(j, k, x, ldx, w + j * ldw, ldw, y + j * y_col, y_row, y_col, e);
    j += 4;
  }
  for (; j < n; ++j) PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) y[m * y_row + j * y_col] = finish(dot(k, x + m * ldx, w + j * ldw), j, e);
}

template <class V, class T>
HWY_INLINE void finish_vector(V sum, int64_t n, int64_t count, T* y, int64_t y_col, const Epilogue<T>& e) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T s[hn::MaxLanes(hn::ScalableTag<T>())];
  const bool full = count == static_cast<int64_t>(hn::Lanes(d));
  if (full && y_col == 1) {
    V v = sum;
    if (e.bias) v = hn::Add(v, hn::LoadU(d, e.bias + n));
    if (e.relu) v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);
    hn::StoreU(v, d, y);
    return;
  }
  hn::Store(sum, d, s);
  finish_columns(s, count, n, y, y_col, e);
}

// `count` <= C * lanes columns of w. All columns of the tile stay in registers for the whole loop over k.
template <int M, int C, class W, class T>
HWY_INLINE void nn_tile(int64_t n, int64_t count, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y,
                        int64_t y_row, int64_t y_col, const Epilogue<T>& e) {
  const SumTag<W> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = count - (C - 1) * lanes;
  const bool whole = last == lanes;
  SumVec<W> acc[M][C];
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int c = 0; c < C; ++c) acc[m][c] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    const W* row = w + i * ldw;
    SumVec<W> wv[C];
    PERIGEE_UNROLL
    for (int c = 0; c < C - 1; ++c) wv[c] = load(d, row + c * lanes);
    wv[C - 1] = whole ? load(d, row + (C - 1) * lanes) : load_first(d, row + (C - 1) * lanes, last);
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) {
      const auto xv = hn::Set(d, x[m * ldx + i]);
      PERIGEE_UNROLL
      for (int c = 0; c < C; ++c) acc[m][c] = hn::MulAdd(wv[c], xv, acc[m][c]);
    }
  }
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int c = 0; c < C; ++c)
    finish_vector(acc[m][c], n + c * lanes, std::min(lanes, count - c * lanes), y + m * y_row + c * lanes * y_col,
                  y_col, e);
}

template <int M, class W, class T>
void nn_rows(int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y, int64_t y_row, int64_t y_col,
             const Epilogue<T>& e) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(SumTag<W>()));
  constexpr int kWide = M <= kWideRows ? 8 : 4;
  int64_t j = 0;
  for (; n - j >= kWide * lanes; j += kWide * lanes)
    nn_tile<M, kWide>(j, kWide * lanes, k, x, ldx, w + j, ldw, y + j * y_col, y_row, y_col, e);
  while (j < n) {
    const int64_t left = n - j;
    if (left > lanes) {
      nn_tile<M, 2>(j, std::min(left, 2 * lanes), k, x, ldx, w + j, ldw, y + j * y_col, y_row, y_col, e);
      j += 2 * lanes;
    } else {
      nn_tile<M, 1>(j, left, k, x, ldx, w + j, ldw, y + j * y_col, y_row, y_col, e);
      j += lanes;
    }
  }
}

template <class W>
struct Gemv {
  using T = SumOf<W>;

  static void nt(int64_t m, int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y, int64_t y_row,
                 int64_t y_col, const Epilogue<T>& e) {
    static constexpr auto kRows = {nt_rows<1, W, T>, nt_rows<2, W, T>, nt_rows<3, W, T>, nt_rows<4, W, T>};
    kRows.begin()[m - 1](n, k, x, ldx, w, ldw, y, y_row, y_col, e);
  }
  static void nn(int64_t m, int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y, int64_t y_row,
                 int64_t y_col, const Epilogue<T>& e) {
    static constexpr auto kRows = {nn_rows<1, W, T>, nn_rows<2, W, T>, nn_rows<3, W, T>, nn_rows<4, W, T>};
    kRows.begin()[m - 1](n, k, x, ldx, w, ldw, y, y_row, y_col, e);
  }
  static constexpr GemvLoops<W> kLoops{nt, nn};
};

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#endif  // PERIGEE_GEMV_INL_H
