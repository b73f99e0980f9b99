// The arguments of kernels/sequence.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// Sequences (time, batch, rest) or (batch, time, rest).
struct SequenceArgs {
  const void* x;
  const void* lengths;  // or null: all steps
  void* out;
  int64_t count;  // of `out`
  int64_t steps, batch, rest, least;
  double value;
  int32_t time_first;
  int32_t report;
  Fault* fault;
};

}  // namespace pg::kernels
