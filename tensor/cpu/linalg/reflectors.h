// Householder reflectors, applied in blocks by our own products, which poll and use all threads.
#pragma once
#include <cstdint>

#include "tensor/cpu/linalg/matrices.h"

namespace pg::cpu {

template <class T>
using Coefficients = Eigen::Matrix<T, Eigen::Dynamic, 1>;

// Reflectors H_i = I - h_i v_i v_i^T. v_i has zeros before row i + shift, 1 in it, and then what column i of `a` has.
template <class T>
struct Reflectors {
  Columns<T> a;
  Coefficients<T> h;
  int64_t shift = 0;

  static Reflectors of_qr(Columns<T> a);
  // Those that make a symmetric matrix, of which the lower triangle is read, tridiagonal.
  static Reflectors of_tridiagonal(Columns<T> a);
  // The first `columns` columns of H_0 H_1 …
  Columns<T> product(int64_t columns) const;
  // Replaces c by H_0 H_1 … c.
  void apply(Columns<T>& c) const;
};

// U B V^T of a matrix with as many rows as columns or more, where B has `diagonal` and, above it, `above`.
template <class T>
struct Bidiagonal {
  explicit Bidiagonal(Columns<T> a);

  Reflectors<T> left() const;   // U
  Reflectors<T> right() const;  // V

  Columns<T> a;
  Coefficients<T> diagonal, above;
};

}  // namespace pg::cpu
