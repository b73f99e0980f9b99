// The arguments of kernels/ctc.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

struct CtcArgs {
  const void* x;              // log-probabilities: steps x batch x classes
  const void* directions[4];  // in the type of x
  const double* targets;      // the labels: a row of `width` for each sample, or those of all samples, `width` in all
  const double *input_lengths, *target_lengths;  // or null
  void* out;
  void* forward;      // jets: `kept` rows of the states of each sample
  void* backward;     // the same with two rows
  double* posterior;  // batch x classes zeros
  int64_t steps, batch, classes, width, blank, kept;
  int32_t rows, zero_infinity;
  int32_t bad_steps, bad_labels, bad_sum, bad_target;  // the reports
  Fault* fault;
};

}  // namespace pg::kernels
