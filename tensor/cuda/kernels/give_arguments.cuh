// The arguments of kernels/give.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

constexpr int kMostBytes = 3584;  // a kernel may have 4096 bytes of arguments

struct GiveArgs {
  uint8_t* to;
  int64_t count;
  uint8_t bytes[kMostBytes];
};

}  // namespace pg::kernels
