// A dim of a contiguous array between the products of the sizes before and after it.
#pragma once
#include "tensor/shape.h"

namespace pg::cpu {

// outer x n x inner, with n the size of dim d. A 0-dim tensor is one line of one.
struct Lines {
  int64_t outer = 1, n = 1, inner = 1;
  Lines(const Dims& shape, int d) {
    for (int k = 0; k < shape.size(); ++k) {
      int64_t& part = k < d ? outer : k == d ? n : inner;
      part = times(part, shape[k]);
    }
  }
};

}  // namespace pg::cpu
