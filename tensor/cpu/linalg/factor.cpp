#include "tensor/cpu/linalg/factor.h"

#include "tensor/cpu/linalg/bidiagonal.h"
#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/linalg/reflectors.h"
#include "tensor/cpu/linalg/solve.h"
#include "tensor/cpu/linalg/tridiagonal.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>

namespace pg::cpu {
namespace {

template <class T>
void fill_some(T* x, int64_t count) {
  if (x) fill_nan(x, count);
}

template <class T>
T power_of_two_near(const T* x, int64_t count) {
  const T most = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>(x, count).abs().maxCoeff();
  return most == T(0) ? T(1) : std::ldexp(T(1), std::max(std::ilogb(most), std::numeric_limits<T>::min_exponent));
}

constexpr int64_t kSmallEigen = 48;    // up to this size Eigen's rotations of whole columns are as fast
constexpr int64_t kSmallValues = 256;  // the same without vectors
constexpr int64_t kSmallQr = 48;       // up to this size Eigen is as fast
constexpr int64_t kJacobi = 16;        // up to this size one-sided Jacobi rotations are as fast, and more exact

// Whether the element of a vector with the largest absolute value is negative.
template <class Vector>
bool points_down(const Vector& v) {
  Eigen::Index at = 0;
  v.cwiseAbs().maxCoeff(&at);
  return std::signbit(v(at));
}

// Turns the first `count` pairs of singular vectors so that their signs do not depend on the solver.
template <class T>
void fix_signs(Rows<T> u, Rows<T> vh, int64_t count) {
  Poller poll;
  for (int64_t j = 0; j < count; ++j, poll(8 * u.rows()))
    if (points_down(u.col(j))) u.col(j) *= -1, vh.row(j) *= -1;
}

template <class T>
struct Svd {
  Columns<T> u, v;
  Eigen::Matrix<T, Eigen::Dynamic, 1> s;
  bool converged = true;
};

template <class T>
Svd<T> jacobi_svd(const Columns<T>& a, bool vectors, bool full) {
  unsigned options = 0;
  if (vectors) options = full ? Eigen::ComputeFullU | Eigen::ComputeFullV : Eigen::ComputeThinU | Eigen::ComputeThinV;
  const Eigen::JacobiSVD<Columns<T>> f(a, options);
  Svd<T> out;
  out.s = f.singularValues();
  if (vectors) out.u = f.matrixU(), out.v = f.matrixV();
  return out;
}

// Sorts the singular values, and with them the first columns of u and v, in descending order, and makes them positive.
template <class T>
void sort_values(Svd<T>& f) {
  const int64_t k = f.s.size();
  std::vector<int64_t> order(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) order[size_t(i)] = i;
  const Svd<T> old = f;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return std::abs(old.s(i)) > std::abs(old.s(j)); });
  for (int64_t i = 0; i < k; ++i) {
    const int64_t from = order[size_t(i)];
    f.s(i) = std::abs(old.s(from));
    if (f.u.size() == 0) continue;
    f.u.col(i) = old.u.col(from);
    f.v.col(i) = old.v.col(from) * (std::signbit(old.s(from)) ? T(-1) : T(1));
  }
}

// a, which has as many rows as columns or more, is U B V^T with a bidiagonal B = P diag(s) Q^T.
template <class T>
Svd<T> tall_svd(const Columns<T>& a, bool vectors, bool full) {
  const int64_t m = a.rows(), n = a.cols();
  const T scale = power_of_two_near(a.data(), m * n);
  const Bidiagonal<T> f(a / scale);
  Coefficients<T> above = f.above;
  Svd<T> out;
  out.s = f.diagonal;
  Columns<T> p, q;
  if (vectors) p = q = Columns<T>::Identity(n, n);
  out.converged = bidiagonal_svd<T>(n, out.s.data(), above.data(), vectors ? &p : nullptr, vectors ? &q : nullptr);
  out.s *= scale;
  if (vectors) {
    out.u = Columns<T>::Identity(m, full ? m : n);
    out.u.topLeftCorner(n, n) = p;
    f.left().apply(out.u);
    out.v = std::move(q);
    f.right().apply(out.v);
  }
  sort_values(out);
  return out;
}

template <class T>
Svd<T> any_svd(const Columns<T>& a, bool vectors, bool full) {
  if (std::min(a.rows(), a.cols()) > kJacobi) {
    const bool wide = a.rows() < a.cols();
    Svd<T> f = wide ? tall_svd<T>(a.transpose(), vectors, full) : tall_svd(a, vectors, full);
    if (wide) std::swap(f.u, f.v);
    if (f.converged) return f;
  }
  return jacobi_svd(a, vectors, full);
}

// x -= tau v (v^T x) for x of `rows` rows, where v is 1 and the elements `step` apart at v.
template <class T>
void reflect(int64_t rows, int64_t columns, T tau, const T* v, int64_t step, T* x, int64_t x_row) {
  for (int64_t c = 0; c < columns; ++c) {
    T sum = x[c];
    for (int64_t i = 1; i < rows; ++i) sum += v[(i - 1) * step] * x[i * x_row + c];
    x[c] -= tau * sum;
    for (int64_t i = 1; i < rows; ++i) x[i * x_row + c] -= tau * sum * v[(i - 1) * step];
  }
}

// For matrices that take less time than Eigen's preparations. The signs are Eigen's.
template <class T>
void qr_tiny(int64_t m, int64_t n, int64_t k, T scale, const T* a, T* q, T* r) {
  T w[kTiny * kTiny], tau[kTiny];
  for (int64_t i = 0; i < m * n; ++i) w[i] = a[i] / scale;
  const int64_t reflections = std::min(m, n);
  for (int64_t j = 0; j < reflections; ++j) {
    T* const top = w + j * n + j;
    T tail = 0;
    for (int64_t i = 1; i < m - j; ++i) tail += top[i * n] * top[i * n];
    const bool done = tail <= std::numeric_limits<T>::min();
    const T norm = std::sqrt(*top * *top + tail), end = done ? *top : *top >= T(0) ? -norm : norm, first = *top - end;
    tau[j] = done ? T(0) : -first / end;
    for (int64_t i = 1; i < m - j; ++i) top[i * n] = done ? T(0) : top[i * n] / first;
    reflect(m - j, n - j - 1, tau[j], top + n, n, top + 1, n);
    *top = end;
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) q[i * k + j] = T(i == j);
  for (int64_t j = reflections - 1; j >= 0; --j) reflect(m - j, k - j, tau[j], w + j * n + j + n, n, q + j * k + j, k);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? T(0) : w[i * n + j];
}

}  // namespace

template <class T>
void qr(int64_t m, int64_t n, int64_t k, const T* a, T* q, T* r) {
  if (!all_finite(a, m * n)) return fill_nan(q, m * k), fill_nan(r, k * n);
  const T scale = power_of_two_near(a, m * n);  // so that no square of an element overflows or underflows
  if (const int64_t most = std::max(m, n); most <= kTiny) {
    qr_tiny(m, n, k, scale, a, q, r);
  } else if (most <= kSmallQr) {
    const Eigen::HouseholderQR<Columns<T>> f(ConstRows<T>(a, m, n) / scale);
    Columns<T> vectors = Columns<T>::Identity(m, k);
    vectors.applyOnTheLeft(f.householderQ());
    Rows<T>(q, m, k) = vectors;
    Rows<T>(r, k, n) = f.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
  } else {
    Columns<T> scaled(m, n);
    assign_polled(scaled, ConstRows<T>(a, m, n) / scale);
    const auto f = Reflectors<T>::of_qr(std::move(scaled));
    assign_polled(Rows<T>(q, m, k), f.product(k));
    assign_polled(Rows<T>(r, k, n), f.a.topRows(k));
    for (int64_t i = 1; i < k; ++i) std::fill_n(r + i * n, std::min(i, n), T(0));
  }
  Rows<T>(r, k, n) *= scale;
}

template <class T>
void svd(int64_t m, int64_t n, bool full, const T* a, T* u, T* s, T* vh) {
  const int64_t k = std::min(m, n);
  if (all_finite(a, m * n)) {
    Columns<T> matrix(m, n);
    assign_polled(matrix, ConstRows<T>(a, m, n));
    const Svd<T> f = any_svd<T>(matrix, u, full);
    Rows<T>(s, k, 1) = f.s;
    if (!u) return;
    Rows<T> left(u, m, f.u.cols()), right(vh, f.v.cols(), n);
    assign_polled(left, f.u);
    assign_polled(right, f.v.transpose());
    return fix_signs<T>(left, right, k);
  }
  fill_nan(s, k);
  fill_some(u, m * (full ? m : k));
  fill_some(vh, n * (full ? n : k));
}

// The eigenvalues, and unless it is null the eigenvectors in the columns of `vectors`, by our own rotations of columns.
// Returns false if it does not converge.
template <class T>
static bool large_eigh(const Columns<T>& a, T* values, T* vectors) {
  const int64_t n = a.rows();
  const T scale = power_of_two_near(a.data(), n * n);
  const auto f = Reflectors<T>::of_tridiagonal(a / scale);
  Coefficients<T> d = f.a.diagonal(), e = f.a.template diagonal<-1>();
  Columns<T> q;
  if (vectors) q = f.product(n);
  if (!tridiagonal_eigen<T>(n, d.data(), e.data(), vectors ? &q : nullptr)) return false;
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return d(i) < d(j); });
  for (int64_t i = 0; i < n; ++i) {
    if (i % 16 == 0) poll_kernel();
    values[i] = d(order[size_t(i)]) * scale;
    if (vectors) Rows<T>(vectors, n, n).col(i) = q.col(order[size_t(i)]);
  }
  return true;
}

template <class T>
static bool any_eigh(const Columns<T>& a, T* values, T* vectors) {
  const int64_t n = a.rows();
  if (n > (vectors ? kSmallEigen : kSmallValues)) return large_eigh(a, values, vectors);
  const Eigen::SelfAdjointEigenSolver<Columns<T>> f(a, vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
  if (f.info() != Eigen::Success) return false;
  Rows<T>(values, n, 1) = f.eigenvalues();
  if (vectors) Rows<T>(vectors, n, n) = f.eigenvectors();
  return true;
}

template <class T>
void eigh(int64_t n, const T* a, T* values, T* vectors) {
  Columns<T> matrix(n, n);
  assign_polled(matrix, ConstRows<T>(a, n, n));
  matrix.template triangularView<Eigen::StrictlyUpper>().setZero();  // it is not read and may hold anything
  if (all_finite(matrix.data(), n * n) && any_eigh(matrix, values, vectors)) {
    if (!vectors) return;
    Rows<T> out(vectors, n, n);
    Poller poll;
    for (int64_t j = 0; j < n; ++j, poll(8 * n))
      if (points_down(out.col(j))) out.col(j) *= -1;
    return;
  }
  fill_nan(values, n);
  fill_some(vectors, n * n);
}

template void qr<float>(int64_t, int64_t, int64_t, const float*, float*, float*);
template void qr<double>(int64_t, int64_t, int64_t, const double*, double*, double*);
template void svd<float>(int64_t, int64_t, bool, const float*, float*, float*, float*);
template void svd<double>(int64_t, int64_t, bool, const double*, double*, double*, double*);
template void eigh<float>(int64_t, const float*, float*, float*);
template void eigh<double>(int64_t, const double*, double*, double*);

}  // namespace pg::cpu
