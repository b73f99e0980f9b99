// Running counts, which say where the elements that a mask selects go.
#pragma once
#include "tensor/cuda/launch.h"

namespace pg::cuda {

// For each position of a mask, how many of its elements up to there are true.
class Ranks {
 public:
  Ranks(Stream& stream, const void* mask, int64_t count);
  const void* data() const { return memory_.data(); }
  DType dtype() const { return dtype_; }
  int64_t total() const;  // waits for the device

 private:
  Stream& stream_;
  int64_t count_;
  DType dtype_;  // the smallest that can count the elements
  Scratch memory_;
};

// out = the running sums of a contiguous array along its last dim.
void running_sums(Stream& stream, const View& in, const View& out);

}  // namespace pg::cuda
