// The arguments of kernels/random.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

struct RandomArgs {
  const void* x;
  void* out;
  int64_t count, seed, tick;
  int64_t low, range;
  double p, scale;
  Fault* fault;
  int32_t report;
};

// A shuffle of `count` numbers that swaps number i with a random one up to i, from the last i on.
struct ShuffleArgs {
  int64_t *numbers, *partners;  // partners: -1 after the swap
  int64_t* claims;              // for each number the largest `round * count + i` of the swaps i that want it
  int64_t* unfinished;          // the last round after which swaps were left
  int64_t count, seed, tick, round, base;
};

// Draws from rows of weights in double precision.
struct DrawArgs {
  const double* weights;  // rows x choices
  double* sums;           // their running sums; without replacement, the keys of the weights
  int64_t* out;           // rows x draws
  int64_t rows, choices, draws, base;
  int64_t count, seed, tick;  // count: of the random numbers
  int32_t replacement;
  int32_t bad_weight, few_weights;  // the reports
  Fault* fault;
};

}  // namespace pg::kernels
