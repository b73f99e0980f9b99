// What a kernel of a device reports of a value that it refuses. Host and devices share this file.
#pragma once
#include <cstdint>

namespace pg {

// One place of a stream's errors, which kernels write and the host reads. The first report stays until the host clears
// it.
struct Fault {
  int32_t report = 0;  // the number of the error's text; 0: nothing was refused
  int32_t size = 0;    // bytes of the elements among which `at` counts, or 0
  int64_t value = 0;   // the value that was refused
  int64_t at = 0;      // its position in the operand, from 0
};

}  // namespace pg
