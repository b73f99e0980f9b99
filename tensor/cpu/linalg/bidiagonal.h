// The singular values of bidiagonal matrices.
#pragma once
#include <cstdint>

#include "tensor/cpu/linalg/matrices.h"

namespace pg::cpu {

// For the n x n matrix B with diagonal d and e above it, of elements of at most about 1: overwrites d with the
// singular values, in no order and with any signs, and multiplies u and v on the right by P and Q with B = P diag(d)
// Q^T. e is destroyed; u and v may be null. Polls. Returns false if it does not converge.
template <class T>
bool bidiagonal_svd(int64_t n, T* d, T* e, Columns<T>* u, Columns<T>* v);

}  // namespace pg::cpu
