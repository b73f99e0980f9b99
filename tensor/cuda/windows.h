// Attributes of convolutions and pooling as one value for each of three spatial dims. Shapes with fewer spatial dims
// get leading ones of size 1.
#pragma once
#include <array>

#include "tensor/op.h"

namespace pg::cuda {

using Three = std::array<int64_t, 3>;

// Returns three values, of which the last `dims` are the last ones of `values`, or its only one.
template <class V>
Three last_three(const V& values, int dims, int64_t rest) {
  Three out{rest, rest, rest};
  const int n = int(values.size());
  for (int d = 0; d < dims; ++d) out[size_t(3 - dims + d)] = *(values.begin() + (n == 1 ? 0 : n - dims + d));
  return out;
}
inline Three spatial_attr(const KernelArgs& a, const char* name, int dims, int64_t rest) {
  return last_three(a.attr<Ints>(name), dims, rest);
}

// The product of the sizes of the last `dims` dims, and of those before them.
inline int64_t plane_of(const Dims& shape, int dims) {
  int64_t n = 1;
  for (int d = shape.size() - dims; d < shape.size(); ++d) n *= shape[d];
  return n;
}
inline int64_t planes_of(const Dims& shape, int dims) {
  int64_t n = 1;
  for (int d = 0; d < shape.size() - dims; ++d) n *= shape[d];
  return n;
}

}  // namespace pg::cuda
