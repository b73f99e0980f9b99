// Attention in memory linear in the numbers of queries and keys: scores exist for a tile at a time (Dao,
// FlashAttention-2, 2023). T: float or double; kMaskKind: 0 for none, 1 for bool, 2 for terms of scores; kDrops: dropout
// of weights; kWidth and kValueWidth: tiles of features. attention_halves.cuh does the same for halves.
#include "attention_rules.cuh"

namespace pg::kernels {

// A block has 16 x 16 threads. Thread (y, x) computes kSide neighbouring rows and columns x, x + 16, … of a tile.
constexpr int kTile = sizeof(T) == 8 ? 32 : 64, kSide = kTile / 16, kThreads = 256;
constexpr int kDepth = 16;                // of a product, in shared memory at a time
constexpr int kPitch = kTile + 4;         // lines begin in different banks, at multiples of 16 bytes
constexpr int kParts = kThreads / kTile;  // threads that share a row of weights

struct alignas(16) Shared {
  T tile[kTile * kPitch];  // weights, or gradients of scores; line after line a column of the tile
  T left[kDepth * kPitch], right[kDepth * kPitch];
};
struct alignas(16) Quad {  // read at once
  T v[kSide];
};
struct Rows {
  const T* data;
  int64_t row, column, count;
};
using Micro = T[kSide][kSide];

__device__ inline T infinity() { return std::numeric_limits<T>::infinity(); }
__device__ inline int row_of(int r) { return int(threadIdx.x) / 16 * kSide + r; }
__device__ inline int column_of(int s) { return int(threadIdx.x) % 16 + 16 * s; }
// The elements of the thread's rows in a line.
__device__ inline Quad rows_in(const T* line) { return *reinterpret_cast<const Quad*>(line + row_of(0)); }
__device__ inline T& in_tile(Shared& shared, int r, int s) { return shared.tile[column_of(s) * kPitch + row_of(r)]; }

// The rows of an operand from `first` on, at most those of a tile.
__device__ inline Rows rows_of(const AttentionArgs& a, int operand, int64_t head, int64_t first, int64_t all) {
  const T* data = static_cast<const T*>(a.in[operand]) + offset_of(a, operand, head) + first * a.row[operand];
  const int64_t left = all - first;
  return {data, a.row[operand], a.column[operand], left < kTile ? left : int64_t(kTile)};
}

// sums += a b^T for rows of `width` features.
__device__ inline void add_products(Micro& sums, const Rows& a, const Rows& b, int64_t width, Shared& shared) {
  for (int64_t d = 0; d < width; d += kDepth) {
    __syncthreads();
    for (int k = int(threadIdx.x); k < kTile * kDepth; k += kThreads) {
      const int i = k / kDepth, c = k % kDepth;
      const bool inside = d + c < width;
      shared.left[c * kPitch + i] = inside && i < a.count ? a.data[i * a.row + (d + c) * a.column] : T(0);
      shared.right[c * kPitch + i] = inside && i < b.count ? b.data[i * b.row + (d + c) * b.column] : T(0);
    }
    __syncthreads();
    for (int c = 0; c < kDepth; ++c) {
      const Quad p = rows_in(shared.left + c * kPitch);
      T q[kSide];
      for (int s = 0; s < kSide; ++s) q[s] = shared.right[c * kPitch + column_of(s)];
      for (int r = 0; r < kSide; ++r)
        for (int s = 0; s < kSide; ++s) sums[r][s] = PERIGEE_FMA(p.v[r], q[s], sums[r][s]);
    }
  }
}

// sums += tile b for rows of `width` features; kTiles tiles of them.
template <int kTiles>
__device__ inline void add_weighted(Micro (&sums)[kTiles], const Rows& b, int64_t width, Shared& shared) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
    for (int j = 0; j < kTile && j < b.count; j += kDepth) {
      __syncthreads();
      for (int k = int(threadIdx.x); k < kTile * kDepth; k += kThreads) {
        const int i = k / kTile, c = k % kTile;
        const int64_t feature = t * kTile + c;
        shared.right[i * kPitch + c] =
            j + i < b.count && feature < width ? b.data[(j + i) * b.row + feature * b.column] : T(0);
      }
      __syncthreads();
      for (int i = 0; i < kDepth; ++i) {
        const Quad p = rows_in(shared.tile + (j + i) * kPitch);
        T q[kSide];
        for (int s = 0; s < kSide; ++s) q[s] = shared.right[i * kPitch + column_of(s)];
        for (int r = 0; r < kSide; ++r)
          for (int s = 0; s < kSide; ++s) sums[t][r][s] = PERIGEE_FMA(p.v[r], q[s], sums[t][r][s]);
      }
    }
}

template <int kTiles>
__device__ inline void store(void* to, int64_t head, int64_t first, int64_t rows, int64_t width,
                             const Micro (&sums)[kTiles], T factor) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        const int64_t i = first + row_of(r), c = t * kTile + column_of(s);
        if (i < rows && c < width) static_cast<T*>(to)[(head * rows + i) * width + c] = sums[t][r][s] * factor;
      }
}

// A score from the product of a query and a key that it sees. `mask`: where that of the head begins.
__device__ inline T score_of(const AttentionArgs& a, int64_t mask, T product, int64_t query, int64_t key) {
  const T score = product * T(a.scale);
  const int64_t at = mask + query * a.row[kMask] + key * a.column[kMask];
  if constexpr (kMaskKind == 1) return static_cast<const bool*>(a.in[kMask])[at] ? score : -infinity();
  if constexpr (kMaskKind == 2) return score + static_cast<const T*>(a.in[kMask])[at];
  return score;
}
// What dropout makes of a weight, or of the gradient of a dropped weight.
__device__ inline T dropped(const AttentionArgs& a, T v, int64_t head, int64_t query, int64_t key) {
  if constexpr (!kDrops) return v;
  Drawn drawn;
  return drops(a, head, query, key, drawn) ? T(0) : v * T(a.kept);
}

__device__ inline T larger(T a, T b) { return a > b || a != a ? a : b; }

// One block a tile of queries of a head.
PERIGEE_BLOCK_KERNEL(attend, AttentionArgs) {
  __shared__ Shared shared;
  __shared__ T part[kThreads], tops[kTile], totals[kTile], factors[kTile];
  const int64_t tiles = (a.queries + kTile - 1) / kTile, head = blockIdx.x / tiles, first = blockIdx.x % tiles * kTile;
  const int thread = int(threadIdx.x), row = thread % kTile, lane = thread / kTile;
  const Rows query = rows_of(a, kQuery, head, first, a.queries);
  const int64_t mask = offset_of(a, kMask, head);
  Micro sums[kValueWidth] = {};
  if (thread < kTile) tops[thread] = -infinity(), totals[thread] = T(0);
  const int64_t end = a.causal && first + kTile < a.keys ? first + kTile : a.keys;
  for (int64_t start = 0; start < end; start += kTile) {
    Micro products = {};
    add_products(products, query, rows_of(a, kKey, head, start, a.keys), a.width, shared);
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        const int64_t i = first + row_of(r), j = start + column_of(s);
        in_tile(shared, r, s) =
            sees(a, i, j) ? score_of(a, mask, products[r][s], i, j) : -infinity();
      }
    __syncthreads();
    T* scores = shared.tile + row;
    T most = -infinity();
    for (int j = lane; j < kTile; j += kParts) most = larger(most, scores[j * kPitch]);
    part[thread] = most;
    __syncthreads();
    const T before = tops[row];
    T top = before;
    for (int p = 0; p < kParts; ++p) top = larger(top, part[p * kTile + row]);
    __syncthreads();
    // With a mask, a query may see no key yet.
    const T base = kMaskKind > 0 && top == -infinity() ? T(0) : top;
    T sum = T(0);
    for (int j = lane; j < kTile; j += kParts) {
      const T weight = std::exp(scores[j * kPitch] - base);
      sum += weight;
      scores[j * kPitch] = dropped(a, weight, head, first + row, start + j);
    }
    part[thread] = sum;
    __syncthreads();
    if (lane == 0) {
      const T factor = before == top ? T(1) : T(std::exp(before - top));
      T total = totals[row] * factor;
      for (int p = 0; p < kParts; ++p) total += part[p * kTile + row];
      tops[row] = top, totals[row] = total, factors[row] = factor;
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kValueWidth; ++t)
      for (int r = 0; r < kSide; ++r)
        for (int s = 0; s < kSide; ++s) sums[t][r][s] *= factors[row_of(r)];
    add_weighted(sums, rows_of(a, kValue, head, start, a.keys), a.value_width, shared);
    __syncthreads();
  }
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kValueWidth; ++t)
    for (int r = 0; r < kSide; ++r) {
      const T total = totals[row_of(r)];
      for (int s = 0; s < kSide; ++s) sums[t][r][s] = total == T(0) ? T(0) : sums[t][r][s] / total;
    }
  store(a.out, head, first, a.queries, a.value_width, sums, T(1));
  if (thread >= kTile || first + thread >= a.queries) return;
  const bool hidden = totals[thread] == T(0);
  static_cast<T*>(a.out2)[head * a.queries + first + thread] = hidden ? T(0) : tops[thread];
  static_cast<T*>(a.out3)[head * a.queries + first + thread] = hidden ? infinity() : T(std::log(totals[thread]));
}

// The weight of a key before dropout, from the normalizers of its query.
__device__ inline T weight_of(const AttentionArgs& a, int64_t mask, T product, int64_t head, int64_t i, int64_t j) {
  if (!sees(a, i, j)) return T(0);
  const int64_t at = head * a.queries + i;
  return std::exp(score_of(a, mask, product, i, j) - static_cast<const T*>(a.top)[at] -
                  static_cast<const T*>(a.log_sum)[at]);
}
// The gradient of a score, from the weight and the gradient of the dropped weight.
__device__ inline T score_grad(const AttentionArgs& a, T weight, T grad, int64_t head, int64_t i, int64_t j) {
  if (!sees(a, i, j)) return T(0);
  return weight * (dropped(a, grad, head, i, j) - static_cast<const T*>(a.delta)[head * a.queries + i]);
}

// One block a tile of queries of a head: their gradients.
PERIGEE_BLOCK_KERNEL(query_grads, AttentionArgs) {
  __shared__ Shared shared;
  const int64_t tiles = (a.queries + kTile - 1) / kTile, head = blockIdx.x / tiles, first = blockIdx.x % tiles * kTile;
  const Rows query = rows_of(a, kQuery, head, first, a.queries), dy = rows_of(a, kDy, head, first, a.queries);
  const int64_t mask = offset_of(a, kMask, head);
  Micro sums[kWidth] = {};
  const int64_t end = a.causal && first + kTile < a.keys ? first + kTile : a.keys;
  for (int64_t start = 0; start < end; start += kTile) {
    const Rows key = rows_of(a, kKey, head, start, a.keys), value = rows_of(a, kValue, head, start, a.keys);
    Micro products = {}, grads = {};
    add_products(products, query, key, a.width, shared);
    add_products(grads, dy, value, a.value_width, shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        const int64_t i = first + row_of(r), j = start + column_of(s);
        const T weight = weight_of(a, mask, products[r][s], head, i, j);
        in_tile(shared, r, s) = score_grad(a, weight, grads[r][s], head, i, j);
      }
    add_weighted(sums, key, a.width, shared);
  }
  store(a.out, head, first, a.queries, a.width, sums, T(a.scale));
}

// One block a tile of keys of a head: the gradients of keys and values.
PERIGEE_BLOCK_KERNEL(key_grads, AttentionArgs) {
  __shared__ Shared shared;
  const int64_t tiles = (a.keys + kTile - 1) / kTile, head = blockIdx.x / tiles, first = blockIdx.x % tiles * kTile;
  const Rows key = rows_of(a, kKey, head, first, a.keys), value = rows_of(a, kValue, head, first, a.keys);
  const int64_t mask = offset_of(a, kMask, head);
  Micro key_sums[kWidth] = {}, value_sums[kValueWidth] = {};
  for (int64_t start = a.causal ? first : 0; start < a.queries; start += kTile) {
    const Rows query = rows_of(a, kQuery, head, start, a.queries), dy = rows_of(a, kDy, head, start, a.queries);
    Micro products = {}, grads = {};
    add_products(products, key, query, a.width, shared);
    add_products(grads, value, dy, a.value_width, shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        const int64_t j = first + row_of(r), i = start + column_of(s);
        products[r][s] = weight_of(a, mask, products[r][s], head, i, j);
        in_tile(shared, r, s) = dropped(a, products[r][s], head, i, j);
      }
    add_weighted(value_sums, dy, a.value_width, shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int s = 0; s < kSide; ++s)
        in_tile(shared, r, s) =
            score_grad(a, products[r][s], grads[r][s], head, start + column_of(s), first + row_of(r));
    add_weighted(key_sums, query, a.width, shared);
    __syncthreads();
  }
  store(a.out2, head, first, a.keys, a.width, key_sums, T(a.scale));
  store(a.out3, head, first, a.keys, a.value_width, value_sums, T(1));
}

}  // namespace pg::kernels
