// A contiguous array as outer x n x inner, around one dim.
#pragma once
#include "tensor/shape.h"

namespace pg::cuda {

// n is the size of dim d; outer and inner are the products of the sizes before and after it. A 0-dim tensor is 1 x 1 x
// 1.
struct Lines {
  Lines(const Dims& shape, int d) {
    for (int k = 0; k < shape.size(); ++k) (k < d ? outer : k == d ? n : inner) *= shape[k];
  }
  int64_t count() const { return outer * inner; }
  int64_t outer = 1, n = 1, inner = 1;
};

}  // namespace pg::cuda
