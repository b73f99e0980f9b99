// Shared by the kernel tables of linear algebra.
#pragma once
#include <cstring>
#include <vector>

#include "tensor/cpu/converted.h"
#include "tensor/cpu/linalg/matrices.h"
#include "tensor/op.h"

namespace pg::cpu {

// Calls f with a null pointer of the type, which is float32 or float64.
template <class F>
void visit_real(DType type, const F& f) {
  if (type == DType::kFloat32)
    f(static_cast<float*>(nullptr));
  else
    f(static_cast<double*>(nullptr));
}

// The last dims of the matrices of a view, and how many matrices there are.
struct Batch {
  int64_t rows, columns, count;
  explicit Batch(const View& v)
      : rows(v.size(v.rank() - 2)),
        columns(v.shape().back()),
        count(rows * columns == 0 ? 0 : v.numel() / (rows * columns)) {}
  int64_t size() const { return rows * columns; }
};

}  // namespace pg::cpu
