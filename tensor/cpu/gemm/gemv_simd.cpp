#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/gemv_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/gemv_simd.h"

#include <algorithm>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Up to this many rows a tile is eight columns wide. With AVX-512 the accumulators then use at most 24 of 32 registers.
constexpr int kWideRows = HWY_TARGET == HWY_AVX3 ? 3 : 1;
HWY_INLINE float finish(float sum, int64_t n, const Epilogue<float>& e) {
  const float v = e.bias ? sum + e.bias[n] : sum;
  return e.relu && v <= 0 ? 0.0f : v;
}

// Finishes sums of `count` consecutive columns. Not inlined: a copy for each accumulator of a tile takes minutes to
// compile.
HWY_NOINLINE void finish_columns(const float* sums, int64_t count, int64_t n, float* y, int64_t y_col,
                                 const Epilogue<float>& e) {
  for (int64_t i = 0; i < count; ++i) y[i * y_col] = finish(sums[i], n + i, e);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void finish_4(V a, V b, V c, V d, int64_t n, float* y, int64_t y_col, const Epilogue<float>& e) {
  const float s[4] = {hn::GetLane(a), hn::GetLane(b), hn::GetLane(c), hn::GetLane(d)};
  finish_columns(s, 4, n, y, y_col, e);
}
#else
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

// Applies the epilogue to the lane sums of a, b, c and d: four consecutive columns of one row.
HWY_INLINE void finish_4(V a, V b, V c, V d, int64_t n, float* y, int64_t y_col, const Epilogue<float>& e) {
  const D tag;
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
template <int M, int R>
HWY_INLINE void nt_tile(int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                        int64_t y_row, int64_t y_col, const Epilogue<float>& e) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[M][R];
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int r = 0; r < R; ++r) acc[m][r] = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    V xv[M];
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) xv[m] = hn::LoadU(d, x + m * ldx + i);
    PERIGEE_UNROLL
    for (int r = 0; r < R; ++r) {
      const V wv = hn::LoadU(d, w + r * ldw + i);
      PERIGEE_UNROLL
      for (int m = 0; m < M; ++m) acc[m][r] = hn::MulAdd(wv, xv[m], acc[m][r]);
    }
  }
  if (i < k) {
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) {
      const V xv = load_part(d, x + m * ldx + i, k - i);
      PERIGEE_UNROLL
      for (int r = 0; r < R; ++r) acc[m][r] = hn::MulAdd(load_part(d, w + r * ldw + i, k - i), xv, acc[m][r]);
    }
  }
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int r = 0; r < R; r += 4)
    finish_4(acc[m][r], acc[m][r + 1], acc[m][r + 2], acc[m][r + 3], n + r, y + m * y_row + r * y_col, y_col, e);
}

template <int M>
void nt_rows(int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y, int64_t y_row,
             int64_t y_col, const Epilogue<float>& e) {
  constexpr int kWide = M <= kWideRows ? 8 : 4;
  int64_t j = 0;
  for (; j + kWide <= n; j += kWide) nt_tile<M, kWide>(j, k, x, ldx, w + j * ldw, ldw, y + j * y_col, y_row, y_col, e);
  if (kWide == 8 && j + 4 <= n) {
    nt_tile<M, 4>(j, k, x, ldx, w + j * ldw, ldw, y + j * y_col, y_row, y_col, e);
    j += 4;
  }
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; j < n; ++j) {
    const float* row = w + j * ldw;
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) {
      const float* xr = x + m * ldx;
      V acc = hn::Zero(d);
      int64_t i = 0;
      for (; i + lanes <= k; i += lanes) acc = hn::MulAdd(hn::LoadU(d, row + i), hn::LoadU(d, xr + i), acc);
      float sum = hn::GetLane(hn::SumOfLanes(d, acc));
      for (; i < k; ++i) sum += row[i] * xr[i];
      float* out = y + m * y_row + j * y_col;
      *out = finish(sum, j, e);
    }
  }
}

void gemv_nt(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
             int64_t y_row, int64_t y_col, const Epilogue<float>& e) {
  switch (m) {
    case 1:
      return nt_rows<1>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    case 2:
      return nt_rows<2>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    case 3:
      return nt_rows<3>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    default:
      return nt_rows<4>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
  }
}

HWY_INLINE void finish_vector(V sum, int64_t n, int64_t count, float* y, int64_t y_col, const Epilogue<float>& e) {
  const D d;
  HWY_ALIGN float s[hn::MaxLanes(D())];
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
template <int M, int C>
HWY_INLINE void nn_tile(int64_t n, int64_t count, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw,
                        float* y, int64_t y_row, int64_t y_col, const Epilogue<float>& e) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = count - (C - 1) * lanes;
  const bool whole = last == lanes;
  V acc[M][C];
  PERIGEE_UNROLL
  for (int m = 0; m < M; ++m) PERIGEE_UNROLL
  for (int c = 0; c < C; ++c) acc[m][c] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    const float* row = w + i * ldw;
    V wv[C];
    PERIGEE_UNROLL
    for (int c = 0; c < C - 1; ++c) wv[c] = hn::LoadU(d, row + c * lanes);
    wv[C - 1] = whole ? hn::LoadU(d, row + (C - 1) * lanes) : load_part(d, row + (C - 1) * lanes, last);
    PERIGEE_UNROLL
    for (int m = 0; m < M; ++m) {
      const V xv = hn::Set(d, x[m * ldx + i]);
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

template <int M>
void nn_rows(int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y, int64_t y_row,
             int64_t y_col, const Epilogue<float>& e) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
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

void gemv_nn(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
             int64_t y_row, int64_t y_col, const Epilogue<float>& e) {
  switch (m) {
    case 1:
      return nn_rows<1>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    case 2:
      return nn_rows<2>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    case 3:
      return nn_rows<3>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
    default:
      return nn_rows<4>(n, k, x, ldx, w, ldw, y, y_row, y_col, e);
  }
}

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

HWY_EXPORT(gemv_nt);
HWY_EXPORT(gemv_nn);
HWY_EXPORT(small_products);

void gemv_nt_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish) {
  HWY_DYNAMIC_DISPATCH(gemv_nt)(m, n, k, x, ldx, w, ldw, y, y_row, y_col, finish);
}

void gemv_nn_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish) {
  HWY_DYNAMIC_DISPATCH(gemv_nn)(m, n, k, x, ldx, w, ldw, y, y_row, y_col, finish);
}

void small_products_f32(int64_t count, const BatchStrides& s, int64_t m, int64_t n, int64_t k, const float* a,
                        Layout la, const float* b, Layout lb, float* c, int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(small_products)(count, s, m, n, k, a, la, b, lb, c, ldc);
}

}  // namespace pg::cpu
#endif
