// Ranges: what messages say about the elements of an array.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/kernel.h"

namespace pg {

struct Range {
  int64_t count = 0, nans = 0, infinities = 0;
  double low = 0, high = 0;  // of the finite elements, if there are any
};

// Waits for the device. Throws Error for a device whose memory the host does not read if the array is not row-major.
Range range_of(const View& view);

// "float32 2x3 in -1..4, 2 NaN, 1 infinite". The device is named unless it is the CPU. With `elements` a
// vector or a 0-dim array of at most 4 elements shows these instead of the range: "float32 2 {1, nan}". An array
// without data is only its type.
std::string describe_range(const View& view, bool elements = false);

}  // namespace pg
