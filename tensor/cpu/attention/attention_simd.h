// Loops over rows of scores: the products of one query and some keys.
#pragma once
#include <cstdint>

namespace pg::cpu {

// The running maximum of a row's scores, and the sum of e^(score - top) over the scores seen.
template <class T>
struct RunningSum {
  T top, sum;
};

template <class T>
struct AttentionLoops {
  // Replaces n scores by e^(score - top), with the new top in `row`, and adds them to its sum. Returns the factor for
  // what was summed with the old top. If `may_hide`, scores of -inf are weights of 0 even where all are -inf.
  T (*weigh)(T* scores, int64_t n, bool may_hide, RunningSum<T>& row);
  // Replaces n scores by e^(score - top - log_sum).
  void (*weights)(T* scores, int64_t n, T top, T log_sum);
  // d = p (d - delta): gradients of scores from those of weights p.
  void (*score_grads)(const T* p, T* d, int64_t n, T delta);
  // y = y factor + x, and y = x factor.
  void (*merge)(T* y, const T* x, int64_t n, T factor);
  void (*scale)(T* y, const T* x, int64_t n, T factor);
};

AttentionLoops<float> attention_loops(float);
AttentionLoops<double> attention_loops(double);

}  // namespace pg::cpu
