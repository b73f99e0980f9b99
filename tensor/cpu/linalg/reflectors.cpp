#include "tensor/cpu/linalg/reflectors.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <utility>

#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

constexpr int64_t kPanel = 32;  // reflectors that are applied together
constexpr int64_t kStrip = 64;  // columns that a thread changes at once

// Replaces columns [from, end) of c by H_first … H_last times them, for `count` reflectors, or by their inverse times
// them: c - V T V^T c, where T is upper triangular (Schreiber and Van Loan, A storage-efficient WY representation for
// products of Householder transformations, 1989). In memory columns are the rows of the transposed matrix.
template <class T>
void apply_panel(const Columns<T>& a, const Coefficients<T>& h, int64_t shift, int64_t first, int64_t count,
                 bool inverse, Columns<T>& c, int64_t from) {
  const int64_t top = first + shift, rows = a.rows() - top, ld = c.rows();
  const auto vectors = a.block(top, first, rows, count);
  const Scratch<T> v_memory(count * rows);
  Rows<T> v(v_memory, count, rows);  // V^T
  v = vectors.transpose();
  for (int64_t i = 0; i < count; ++i) {
    v.row(i).head(i).setZero();
    v(i, i) = 1;
  }
  Matrix<T> t = Matrix<T>::Zero(count, count);
  Eigen::internal::make_block_householder_triangular_factor(t, vectors, h.segment(first, count));
  t = -t;
  T* const data = c.data() + top;
  const int64_t columns = c.cols() - from, strips = (columns + kStrip - 1) / kStrip;
  const int64_t grain = int64_t(kGrainWork / double(2 * kStrip * rows * count)) + 1;
  parallel_for(strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      T* const at = data + (from + s * kStrip) * ld;
      const int64_t width = std::min(kStrip, columns - s * kStrip);
      const Scratch<T> memory(2 * kStrip * kPanel);
      T *const inner = memory, *const turned = inner + kStrip * kPanel;
      gemm_simd<T>(false, true, width, count, rows, at, ld, v.data(), rows, inner, count);
      gemm_simd<T>(false, !inverse, width, count, count, inner, count, t.data(), count, turned, count);
      gemm_simd<T>(false, false, width, rows, count, turned, count, v.data(), rows, at, ld, true);
    }
  });
}

}  // namespace

template <class T>
Reflectors<T> Reflectors<T>::of_qr(Columns<T> matrix) {
  Reflectors f{std::move(matrix), {}, 0};
  const int64_t m = f.a.rows(), n = f.a.cols(), k = std::min(m, n);
  f.h.resize(k);
  Coefficients<T> memory(n);
  for (int64_t first = 0; first < k; first += kPanel) {
    poll_kernel();
    const int64_t width = std::min(kPanel, k - first);
    auto panel = f.a.block(first, first, m - first, width);
    auto coefficients = f.h.segment(first, width);
    Eigen::internal::householder_qr_inplace_unblocked(panel, coefficients, memory.data());
    if (first + width < n) apply_panel(f.a, f.h, 0, first, width, true, f.a, first + width);
  }
  return f;
}

// As Eigen's tridiagonalization_inplace, with polls.
template <class T>
Reflectors<T> Reflectors<T>::of_tridiagonal(Columns<T> matrix) {
  Reflectors f{std::move(matrix), {}, 1};
  Columns<T>& a = f.a;
  const int64_t n = a.rows();
  f.h.resize(n - 1);
  for (int64_t i = 0; i + 1 < n; ++i) {
    poll_kernel();
    const int64_t rest = n - i - 1;
    T beta, h;
    auto v = a.col(i).tail(rest);
    v.makeHouseholderInPlace(h, beta);
    v(0) = 1;
    auto block = a.bottomRightCorner(rest, rest);
    auto w = f.h.tail(rest);
    w.noalias() = block.template selfadjointView<Eigen::Lower>() * (h * v);
    w += (h * T(-0.5) * w.dot(v)) * v;
    block.template selfadjointView<Eigen::Lower>().rankUpdate(v, w, T(-1));
    v(0) = beta;
    f.h(i) = h;
  }
  return f;
}

template <class T>
Columns<T> Reflectors<T>::product(int64_t columns) const {
  Columns<T> out = Columns<T>::Identity(a.rows(), columns);
  for (int64_t end = h.size(); end > 0; end = (end - 1) / kPanel * kPanel) {
    poll_kernel();
    const int64_t first = (end - 1) / kPanel * kPanel;
    if (first + shift < columns) apply_panel(a, h, shift, first, end - first, false, out, first + shift);
  }
  return out;
}

template <class T>
void Reflectors<T>::apply(Columns<T>& c) const {
  for (int64_t end = h.size(); end > 0; end = (end - 1) / kPanel * kPanel) {
    poll_kernel();
    const int64_t first = (end - 1) / kPanel * kPanel;
    apply_panel(a, h, shift, first, end - first, false, c, 0);
  }
}

// As Eigen's upperbidiagonalization_inplace_blocked, with polls and smaller panels: each column of a panel reads the
// rest of the matrix twice.
template <class T>
Bidiagonal<T>::Bidiagonal(Columns<T> matrix) : a(std::move(matrix)) {
  constexpr int64_t kColumns = 8, kSmall = 48;
  const int64_t m = a.rows(), n = a.cols();
  diagonal.resize(n);
  above.resize(n - 1);
  Columns<T> x(m, kColumns), y(n, kColumns);
  for (int64_t k = 0; k < n; k += kColumns) {
    poll_kernel();
    Eigen::Block<Columns<T>> rest = a.block(k, k, m - k, n - k);
    T *const d = diagonal.data() + k, *const e = above.data() + k;
    if (n - k < kSmall) {
      Eigen::internal::upperbidiagonalization_inplace_unblocked(rest, d, e, x.data());
      break;
    }
    Eigen::internal::upperbidiagonalization_blocked_helper<Eigen::Block<Columns<T>>>(
        rest, d, e, kColumns, x.topRows(m - k), y.topRows(n - k));
  }
}

template <class T>
Reflectors<T> Bidiagonal<T>::left() const {
  return {a, a.diagonal(), 0};
}

template <class T>
Reflectors<T> Bidiagonal<T>::right() const {
  return {a.topRows(a.cols()).transpose(), a.template diagonal<1>().head(a.cols() - 1), 1};
}

template struct Bidiagonal<float>;
template struct Bidiagonal<double>;
template struct Reflectors<float>;
template struct Reflectors<double>;

}  // namespace pg::cpu
