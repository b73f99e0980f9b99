// Attention of one head, in memory linear in the numbers of queries and keys: scores exist for a block of queries and a
// block of keys at a time. Dao, FlashAttention-2, 2023.
#pragma once
#include <cstdint>

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

template <class T>
struct Head {
  int64_t queries, keys, width, value_width;
  Matrix<T> query, key, value;
  Mask mask;
  bool causal;  // query i sees keys 0 to i
  T scale;      // of the products
  Drops drops;
};

// Queries of a call of attend, and keys of one step of attend_backward.
constexpr int64_t kQueryBlock = 128, kKeyBlock = 128;

// The largest score of each query, and the logarithm of the sum of e^(score - top): weights are e^(score - top -
// log_sum). Where a mask hides all keys they are 0 and inf.
template <class T>
struct Normalizers {
  T *top, *log_sum;
};

// Writes dropped(softmax(scale query key^T + mask)) value, `count` <= kQueryBlock dense rows from query `first` on, and
// their normalizers. A row that the mask hides is 0.
template <class T>
void attend(const Head<T>& head, int64_t first, int64_t count, T* out, const Normalizers<T>& normalizers);

// Adds to the gradients dq of all queries, and dk and dv of keys [first, end), which are dense. `delta` is sum(dy out)
// of each query, less the cotangent of log_sum.
template <class T>
void attend_backward(const Head<T>& head, const Matrix<T>& dy, const Normalizers<const T>& normalizers, const T* delta,
                     int64_t first, int64_t end, T* dq, T* dk, T* dv);

}  // namespace pg::cpu
