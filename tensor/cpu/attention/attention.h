// Attention of one head, in memory linear in the numbers of queries and keys: scores exist for a block of queries and a
// block of keys at a time. Dao, FlashAttention-2, 2023.
#pragma once
#include <cstdint>

#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/dtype.h"
#include "tensor/random.h"

namespace pg::cpu {

// A matrix whose rows are `stride` elements apart.
template <class T>
struct Matrix {
  const T* data = nullptr;
  int64_t stride = 0;
  const T* row(int64_t i) const { return data + i * stride; }
};

// What a query sees: a bool mask, or terms of scores; nothing is hidden without data. Distances are in elements.
struct Mask {
  const void* data = nullptr;
  bool adds = false;
  int64_t row = 0, column = 0;
};

// Dropout of the weights: those of a head begin at element `first` of the weights of all heads.
struct Drops {
  double share = 0;
  RandomKey key;
  int64_t first = 0;
};

// E is float, double, or BFloat16 where multiplies_bf16(). Scores are of type SumOf<E>.
template <class E>
struct Head {
  int64_t queries, keys, width, value_width;
  Matrix<E> query, key, value;
  Mask mask;       // of SumOf<E>
  bool causal;     // query i sees keys 0 to i
  SumOf<E> scale;  // of the products
  Drops drops;
};

// Queries of a call of attend, and keys of one step of attend_backward.
constexpr int64_t kQueryBlock = 256, kKeyBlock = 128;

// The largest score of each query, and the logarithm of the sum of e^(score - top): weights are e^(score - top -
// log_sum). Where a mask hides all keys they are 0 and inf.
template <class T>
struct Normalizers {
  T *top, *log_sum;
};

// Writes dropped(softmax(scale query key^T + mask)) value, `count` <= kQueryBlock dense rows from query `first` on, and
// their normalizers. A row that the mask hides is 0. Weights of BFloat16 operands are rounded to it.
template <class E>
void attend(const Head<E>& head, int64_t first, int64_t count, SumOf<E>* out, const Normalizers<SumOf<E>>& normalizers);

// Writes the gradients dk and dv of keys [first, end), which are dense, and adds dq / scale of all queries to `dq`.
// `delta` is sum(dy out) of each query, less the cotangent of log_sum.
template <class E>
void attend_backward(const Head<E>& head, const Matrix<E>& dy, const Normalizers<const SumOf<E>>& normalizers,
                     const SumOf<E>* delta, int64_t first, int64_t end, SumOf<E>* dq, E* dk, E* dv);

}  // namespace pg::cpu
