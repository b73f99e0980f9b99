// Attention of halves by tensor cores: scores, weights and sums are float32 in registers; weights are rounded for their
// products (Dao, FlashAttention-2, 2023). T: Half or BFloat16; M: the dtype of terms of scores; kMaskKind and kDrops as
// for attention.cuh; kWidth and kValueWidth: features, rounded up to multiples of 16; kAttend, kQueryGrads and
// kKeyGrads: tilings. The largest scores, logarithms of sums and deltas of queries are float32.
#include "attention_arguments.cuh"
#include "attention_rules.cuh"
#include "tensor_cores.cuh"

namespace pg::kernels {

constexpr float kLog2e = 1.44269504f;
constexpr int kPitch = pitch_of(kWidth), kValuePitch = pitch_of(kValueWidth);

__device__ inline float infinity() { return std::numeric_limits<float>::infinity(); }
constexpr int larger(int a, int b) { return a > b ? a : b; }

// Tiles of two matrices that share the index of their rows, twice: one pair is computed with while the next is loaded.
// First they hold the rows of the block.
template <HalvesTiling tiling>
struct alignas(16) HalvesShared {
  static constexpr int kPair = tiling.columns * (kPitch + kValuePitch);
  // Which pair has the columns from `start` on.
  static __device__ int turn(int start) { return start / tiling.columns % 2; }
  T tiles[larger(2 * kPair, tiling.rows() * larger(kPitch, kValuePitch))];
  __device__ T* left(int start) { return tiles + turn(start) * kPair; }  // of width kWidth
  __device__ T* right(int start) { return left(start) + tiling.columns * kPitch; }
};

__device__ inline int warp() { return int(threadIdx.x) / 32; }
__device__ inline HalfRows operand(const AttentionArgs& a, int which, int64_t head) {
  const bool by_query = which == kQuery || which == kDy, is_value = which == kValue || which == kDy;
  return {static_cast<const T*>(a.in[which]) + offset_of(a, which, head), a.row[which],
          int(by_query ? a.queries : a.keys), int(is_value ? a.value_width : a.width)};
}

// The rows of a block in shared memory.
template <HalvesTiling tiling, int kRowWidth>
__device__ inline void load_block(T* tile, const HalfRows& from, int first) {
  begin_tile<tiling.rows(), kRowWidth, tiling.threads()>(tile, from, first);
  finish_copies();
  __syncthreads();
}
// The fragments of the warp's rows among those of the block, which pass through a tile.
template <HalvesTiling tiling, int kSteps>
__device__ inline void take_rows(uint32_t (&rows)[kSteps][4], T* tile, const HalfRows& from, int first) {
  load_block<tiling, kSteps * 16>(tile, from, first);
  load_rows(rows, tile + warp() * 16 * pitch_of(kSteps * 16));
  __syncthreads();
}

// Where 16 rows of scores of a warp and a tile of columns begin. Scores are products before a.scale, which is positive,
// or with a mask after it. Only their differences are multiplied by log2(e), so that large scores lose nothing.
struct Scores {
  const AttentionArgs& a;
  int64_t head, mask;  // mask: where that of the head begins
  int row, column;
  bool by_query;  // whether a row is a query, and a column a key; else the other way round

  __device__ int query(int n, int e) const { return by_query ? row + sum_row(e) : column + n * 8 + sum_column(e); }
  __device__ int key(int n, int e) const { return by_query ? column + n * 8 + sum_column(e) : row + sum_row(e); }
  __device__ bool hidden(int n, int e) const {
    return query(n, e) >= int(a.queries) || key(n, e) >= int(a.keys) || (a.causal && key(n, e) > query(n, e));
  }
  // Whether all queries see all keys.
  __device__ bool whole(int columns) const {
    const int first_query = by_query ? row : column, past_query = by_query ? row + 16 : column + columns;
    const int past_key = by_query ? column + columns : row + 16;
    return past_key <= int(a.keys) && past_query <= int(a.queries) && (!a.causal || past_key <= first_query + 1);
  }
  __device__ float unit() const { return kMaskKind == 0 ? float(a.scale) : 1.0f; }
  // The score of a product that is not hidden.
  __device__ float of(float product, int n, int e) const {
    if constexpr (kMaskKind == 0) return product;
    const float score = product * float(a.scale);
    const int64_t at = mask + query(n, e) * a.row[kMask] + key(n, e) * a.column[kMask];
    if constexpr (kMaskKind == 1) return static_cast<const bool*>(a.in[kMask])[at] ? score : -infinity();
    if constexpr (kMaskKind == 2) return score + formulas::widen(static_cast<const M*>(a.in[kMask])[at]);
  }
};

// Calls f(n, e) for the sums of a tile. Where rows are queries, weights that share a block of the generator follow one
// another.
template <int kTiles, class F>
__device__ inline void each_sum(F f) {
  PERIGEE_UNROLL
  for (int e = 0; e < 4; ++e)
    PERIGEE_UNROLL
    for (int odd = 0; odd < 2; ++odd)
      PERIGEE_UNROLL
      for (int n = odd; n < kTiles; n += 2) f(n, e);
}

// Makes scores of products.
template <int kTiles>
__device__ inline void score(const Scores& place, float (&products)[kTiles][4]) {
  if (place.whole(kTiles * 8))
    each_sum<kTiles>([&](int n, int e) { products[n][e] = place.of(products[n][e], n, e); });
  else
    each_sum<kTiles>(
        [&](int n, int e) { products[n][e] = place.hidden(n, e) ? -infinity() : place.of(products[n][e], n, e); });
}

template <class F>
__device__ inline float over_quad(float v, F join) {
  v = join(v, __shfl_xor_sync(~0u, v, 1));
  return join(v, __shfl_xor_sync(~0u, v, 2));
}

// Makes weights of products; dropped weights are zeros. top and total are the largest score and the thread's part of
// the sum of weights of its rows so far. sums are scaled to the new top.
template <int kTiles, int kValueTiles>
__device__ inline void weigh(const Scores& place, float (&scores)[kTiles][4], float (&sums)[kValueTiles][4],
                             float (&top)[2], float (&total)[2]) {
  score(place, scores);
  float most[2] = {top[0], top[1]};
  each_sum<kTiles>([&](int n, int e) { most[e / 2] = fmaxf(most[e / 2], scores[n][e]); });
  const float unit = place.unit() * kLog2e;
  float base[2];
  PERIGEE_UNROLL
  for (int r = 0; r < 2; ++r) {
    most[r] = over_quad(most[r], [](float x, float y) { return fmaxf(x, y); });
    base[r] = most[r] == -infinity() ? 0.0f : most[r];  // a query may see no key yet
    const float factor = fast_exp2((top[r] - base[r]) * unit);
    top[r] = most[r];
    total[r] *= factor;
    PERIGEE_UNROLL
    for (int n = 0; n < kValueTiles; ++n) sums[n][2 * r] *= factor, sums[n][2 * r + 1] *= factor;
  }
  Drawn drawn;
  each_sum<kTiles>([&](int n, int e) {
    const float weight = fast_exp2((scores[n][e] - base[e / 2]) * unit);
    total[e / 2] += weight;
    scores[n][e] = weight;
    if constexpr (kDrops)
      scores[n][e] =
          drops(place.a, place.head, place.query(n, e), place.key(n, e), drawn) ? 0.0f : weight * float(place.a.kept);
  });
}

// The block's head, and the number of its first row. `last_first`: blocks begin with the last rows.
struct HalvesBlock {
  int64_t head;
  int first;
};
template <HalvesTiling tiling>
__device__ inline HalvesBlock halves_block(int64_t rows, bool last_first) {
  const int tiles = (int(rows) + tiling.rows() - 1) / tiling.rows(), tile = int(blockIdx.x) % tiles;
  return {int(blockIdx.x) / tiles, (last_first ? tiles - 1 - tile : tile) * tiling.rows()};
}
// The keys that queries before `past` see end here.
__device__ inline int keys_before(const AttentionArgs& a, int past) {
  return a.causal && past < a.keys ? past : int(a.keys);
}

// Calls f(start) for the tiles of keys and values before `end` that the warp's 16 queries from `own` on may see, while
// the next tiles are loaded.
template <HalvesTiling tiling, class F>
__device__ inline void each_key_tile(const AttentionArgs& a, int64_t head, int own, int end,
                                     HalvesShared<tiling>& shared, F f) {
  const HalfRows keys = operand(a, kKey, head), values = operand(a, kValue, head);
  const auto begin = [&](int start) {
    if (start >= end) return;
    begin_tile<tiling.columns, kWidth, tiling.threads()>(shared.left(start), keys, start);
    begin_tile<tiling.columns, kValueWidth, tiling.threads()>(shared.right(start), values, start);
  };
  begin(0);
  for (int start = 0; start < end; start += tiling.columns) {
    finish_copies();
    __syncthreads();
    begin(start + tiling.columns);
    if (!a.causal || start < own + 16) f(start);
  }
}

// One block some queries of a head.
PERIGEE_BOUNDED_KERNEL(attend_halves, kAttend.threads(), kAttend.blocks, AttentionArgs) {
  constexpr int kColumns = kAttend.columns;
  __shared__ HalvesShared<kAttend> shared;
  const auto [head, first] = halves_block<kAttend>(a.queries, a.causal);
  uint32_t query[kWidth / 16][4];
  take_rows<kAttend>(query, shared.tiles, operand(a, kQuery, head), first);

  const int own = first + warp() * 16, end = keys_before(a, first + kAttend.rows());
  float sums[kValueWidth / 8][4] = {}, top[2] = {-infinity(), -infinity()}, total[2] = {};
  const int64_t mask = offset_of(a, kMask, head);
  each_key_tile<kAttend>(a, head, own, end, shared, [&](int start) {
    float scores[kColumns / 8][4] = {};
    add_products(scores, query, shared.left(start));
    weigh({a, head, mask, own, start, true}, scores, sums, top, total);
    add_weighted(sums, scores, shared.right(start));
  });

  float factors[2];
  PERIGEE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float all = over_quad(total[r], [](float x, float y) { return x + y; });
    factors[r] = all == 0.0f ? 0.0f : 1.0f / all;
    const int row = own + sum_row(2 * r);
    if (lane() % 4 != 0 || row >= a.queries) continue;
    const int64_t at = head * a.queries + row;
    static_cast<float*>(a.out2)[at] = all == 0.0f ? 0.0f : top[r] * (kMaskKind == 0 ? float(a.scale) : 1.0f);
    static_cast<float*>(a.out3)[at] = all == 0.0f ? infinity() : std::log(all);
  }
  store_rows(static_cast<T*>(a.out) + head * a.queries * a.value_width, own, a.queries, a.value_width, sums, factors);
}

// What the gradients need of a query: its largest score, the logarithm to base 2 of its sum, and delta.
struct Normalizer {
  float top, log_sum, delta;
};
__device__ inline Normalizer normalizer_of(const AttentionArgs& a, int64_t head, int query) {
  if (query >= a.queries) return {0.0f, infinity(), 0.0f};
  const int64_t at = head * a.queries + query;
  return {static_cast<const float*>(a.top)[at], static_cast<const float*>(a.log_sum)[at] * kLog2e,
          static_cast<const float*>(a.delta)[at]};
}

// Makes weights after dropout of the products in `scores`, and the gradients of scores of those of weights in `grads`.
// normalizer(n, e) is that of the query.
template <int kTiles, class F>
__device__ inline void score_grads(const Scores& place, float (&scores)[kTiles][4], float (&grads)[kTiles][4],
                                   F normalizer) {
  score(place, scores);
  const float unit = place.unit();
  Drawn drawn;
  each_sum<kTiles>([&](int n, int e) {
    const Normalizer of = normalizer(n, e);
    const float weight = fast_exp2(PERIGEE_FMA(scores[n][e] * unit - of.top, kLog2e, -of.log_sum));
    float kept = 1.0f;
    if constexpr (kDrops)
      kept = drops(place.a, place.head, place.query(n, e), place.key(n, e), drawn) ? 0.0f : float(place.a.kept);
    grads[n][e] = weight * (grads[n][e] * kept - of.delta);
    scores[n][e] = weight * kept;
  });
  // A gradient that is infinite or NaN stays with the keys that its query sees.
  if (place.whole(kTiles * 8)) return;
  each_sum<kTiles>([&](int n, int e) {
    if (place.hidden(n, e)) scores[n][e] = grads[n][e] = 0.0f;
  });
}

// One block some queries of a head: their gradients.
PERIGEE_BOUNDED_KERNEL(query_grads_halves, kQueryGrads.threads(), kQueryGrads.blocks, AttentionArgs) {
  constexpr int kColumns = kQueryGrads.columns;
  __shared__ HalvesShared<kQueryGrads> shared;
  const auto [head, first] = halves_block<kQueryGrads>(a.queries, a.causal);
  uint32_t query[kWidth / 16][4], dy[kValueWidth / 16][4];
  take_rows<kQueryGrads>(query, shared.tiles, operand(a, kQuery, head), first);
  take_rows<kQueryGrads>(dy, shared.tiles, operand(a, kDy, head), first);

  const int own = first + warp() * 16, end = keys_before(a, first + kQueryGrads.rows());
  const Normalizer normalizers[2] = {normalizer_of(a, head, own + sum_row(0)),
                                     normalizer_of(a, head, own + sum_row(2))};
  const int64_t mask = offset_of(a, kMask, head);
  float sums[kWidth / 8][4] = {};
  each_key_tile<kQueryGrads>(a, head, own, end, shared, [&](int start) {
    float scores[kColumns / 8][4] = {}, grads[kColumns / 8][4] = {};
    add_products(scores, query, shared.left(start));
    add_products(grads, dy, shared.right(start));
    score_grads({a, head, mask, own, start, true}, scores, grads,
                [&](int, int e) { return normalizers[e / 2]; });
    add_weighted(sums, grads, shared.left(start));
  });
  const float scale = float(a.scale);
  store_rows(static_cast<T*>(a.out) + head * a.queries * a.width, own, a.queries, a.width, sums, {scale, scale});
}

// One block some keys of a head: the gradients of keys and values.
PERIGEE_BOUNDED_KERNEL(key_grads_halves, kKeyGrads.threads(), kKeyGrads.blocks, AttentionArgs) {
  constexpr int kColumns = kKeyGrads.columns;
  __shared__ HalvesShared<kKeyGrads> shared;
  alignas(16) __shared__ T values[kKeyGrads.rows() * kValuePitch];
  __shared__ Normalizer normalizers[2][kColumns];
  const auto [head, first] = halves_block<kKeyGrads>(a.keys, false);
  const HalfRows queries = operand(a, kQuery, head), dys = operand(a, kDy, head);
  uint32_t key[kWidth / 16][4];
  take_rows<kKeyGrads>(key, shared.tiles, operand(a, kKey, head), first);
  load_block<kKeyGrads, kValueWidth>(values, operand(a, kValue, head), first);

  const int own = first + warp() * 16;
  const auto begin = [&](int start) {
    if (start >= a.queries) return;
    begin_tile<kColumns, kWidth, kKeyGrads.threads()>(shared.left(start), queries, start);
    begin_tile<kColumns, kValueWidth, kKeyGrads.threads()>(shared.right(start), dys, start);
    const int column = int(threadIdx.x);
    if (column < kColumns) normalizers[shared.turn(start)][column] = normalizer_of(a, head, start + column);
  };
  const int64_t mask = offset_of(a, kMask, head);
  float key_sums[kWidth / 8][4] = {}, value_sums[kValueWidth / 8][4] = {};
  int start = a.causal ? first / kColumns * kColumns : 0;  // earlier queries see no key of the block
  begin(start);
  for (; start < a.queries; start += kColumns) {
    finish_copies();
    __syncthreads();
    begin(start + kColumns);
    if (a.causal && start + kColumns <= own) continue;
    float scores[kColumns / 8][4] = {}, grads[kColumns / 8][4] = {};
    add_products(scores, key, shared.left(start));
    add_products<kValueWidth>(grads, values + warp() * 16 * kValuePitch, shared.right(start));
    score_grads({a, head, mask, own, start, false}, scores, grads,
                [&](int n, int e) { return normalizers[shared.turn(start)][n * 8 + sum_column(e)]; });
    add_weighted(value_sums, scores, shared.right(start));
    add_weighted(key_sums, grads, shared.left(start));
  }
  const float scale = float(a.scale);
  store_rows(static_cast<T*>(a.out2) + head * a.keys * a.width, own, a.keys, a.width, key_sums, {scale, scale});
  store_rows(static_cast<T*>(a.out3) + head * a.keys * a.value_width, own, a.keys, a.value_width, value_sums,
             {1.0f, 1.0f});
}

}  // namespace pg::kernels
