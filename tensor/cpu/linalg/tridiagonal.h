// The eigenvalues of symmetric tridiagonal matrices.
#pragma once
#include <cstdint>

#include "tensor/cpu/linalg/matrices.h"

namespace pg::cpu {

// For the n x n matrix A with diagonal d and e beside it, of elements of at most about 1: overwrites d with the
// eigenvalues in no order, and multiplies q, unless it is null, on the right by V with A = V diag(d) V^T. e is
// destroyed. Polls. Returns false if it does not converge.
template <class T>
bool tridiagonal_eigen(int64_t n, T* d, T* e, Columns<T>* q);

}  // namespace pg::cpu
