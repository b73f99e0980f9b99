// Right-looking blocked factorizations (Golub and Van Loan, Matrix Computations, 3.2.11 and 4.2.9). Eigen factors
// blocks of kBlock columns; our own products update the rest.
#include "tensor/cpu/linalg/solve.h"

#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/linalg/scaled.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/scratch.h"

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace pg::cpu {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kSmall = 384;  // up to this size Eigen does everything, in a few milliseconds

// c -= op(a) op(b), for m x k and k x n matrices, in strips of rows that fit a cache. op transposes if asked to.
template <class T>
void subtract_product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
                      int64_t ldb, T* c, int64_t ldc, WorkVector<T>& product) {
  if (m == 0 || n == 0) return;
  const int64_t rows = std::min(m, std::max<int64_t>(kBlock, (int64_t(1) << 18) / n));
  product.resize(size_t(rows * n));
  for (int64_t i = 0; i < m; i += rows) {
    const int64_t count = std::min(rows, m - i);
    gemm<T>(trans_a, trans_b, count, n, k, trans_a ? a + i : a + i * lda, lda, b, ldb, product.data(), n);
    block(c + i * ldc, count, n, ldc) -= block(product.data(), count, n, n);
  }
}

// Factors columns [k, k + width) of an n x n matrix from row k down, and swaps whole rows. Returns false when a pivot
// is 0.
template <class T>
bool factor_panel(int64_t n, int64_t k, int64_t width, T* a, int64_t* order) {
  for (int64_t j = k; j < k + width; ++j) {
    int64_t pivot = j;
    for (int64_t i = j + 1; i < n; ++i)
      if (std::abs(a[i * n + j]) > std::abs(a[pivot * n + j])) pivot = i;
    if (a[pivot * n + j] == T(0)) return false;
    if (pivot != j) {
      std::swap_ranges(a + j * n, a + j * n + n, a + pivot * n);
      std::swap(order[j], order[pivot]);
    }
    const int64_t right = k + width - j - 1;
    const T *row = a + j * n + j + 1, scale = T(1) / a[j * n + j];
    for (int64_t i = j + 1; i < n; ++i) {
      const T factor = a[i * n + j] *= scale;
      for (int64_t c = 0; c < right; ++c) a[i * n + j + 1 + c] -= factor * row[c];
    }
  }
  return true;
}

// The same for a whole matrix of kSize rows: straight code, without the branches that random elements make slow.
template <int64_t kSize, class T>
bool factor_fixed(T* a, int64_t* order) {
  T row[kSize][kSize];
  int64_t at[kSize];
  std::copy_n(a, kSize * kSize, &row[0][0]);
  std::copy_n(order, kSize, at);
  PERIGEE_UNROLL
  for (int64_t j = 0; j < kSize; ++j) {
    PERIGEE_UNROLL
    for (int64_t i = j + 1; i < kSize; ++i) {  // the largest so far is in row j
      const bool larger = std::abs(row[i][j]) > std::abs(row[j][j]);
      PERIGEE_UNROLL
      for (int64_t c = 0; c < kSize; ++c) {
        const T low = row[i][c], high = row[j][c];
        row[j][c] = larger ? low : high;
        row[i][c] = larger ? high : low;
      }
      const int64_t low = at[i], high = at[j];
      at[j] = larger ? low : high;
      at[i] = larger ? high : low;
    }
    if (row[j][j] == T(0)) return false;
    const T scale = T(1) / row[j][j];
    PERIGEE_UNROLL
    for (int64_t i = j + 1; i < kSize; ++i) {
      const T factor = row[i][j] *= scale;
      PERIGEE_UNROLL
      for (int64_t c = j + 1; c < kSize; ++c) row[i][c] -= factor * row[j][c];
    }
  }
  std::copy_n(&row[0][0], kSize * kSize, a);
  std::copy_n(at, kSize, order);
  return true;
}

// Solves with a block on the diagonal, of which one triangle is read.
template <unsigned kMode, class M, class T>
void solve_block(const M& triangle, bool unit, Block<T>& rows) {
  if (unit)
    triangle.template triangularView<kMode | Eigen::UnitDiag>().solveInPlace(rows);
  else
    triangle.template triangularView<kMode>().solveInPlace(rows);
}

template <class T>
void solve_diagonal_block(const Triangle<T>& t, int64_t k, Block<T>& rows) {
  const Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>> corner(t.a + k * t.n + k, rows.rows(), rows.rows(),
                                                                    Eigen::OuterStride<>(t.n));
  if (t.transposed)
    t.upper ? solve_block<Eigen::Lower>(corner.transpose(), t.unit, rows)
            : solve_block<Eigen::Upper>(corner.transpose(), t.unit, rows);
  else
    t.upper ? solve_block<Eigen::Upper>(corner, t.unit, rows) : solve_block<Eigen::Lower>(corner, t.unit, rows);
}

template <class T>
bool solve_large(int64_t n, int64_t columns, const T* a, const T* b, T* x) {
  WorkVector<T> lu(a, a + n * n);
  WorkVector<int64_t> order(static_cast<size_t>(n));
  if (!factor_lu(n, lu.data(), order.data())) return false;
  for (int64_t i = 0; i < n; ++i) std::copy_n(b + order[size_t(i)] * columns, columns, x + i * columns);
  solve_triangle<T>({.a = lu.data(), .n = n, .upper = false, .unit = true}, columns, x);
  solve_triangle<T>({.a = lu.data(), .n = n, .upper = true}, columns, x);
  return true;
}

// For matrices that take less time than an allocation.
template <class T>
bool solve_tiny(int64_t n, int64_t columns, const T* a, const T* b, T* x) {
  T lu[kTiny * kTiny];
  int64_t order[kTiny];
  std::copy_n(a, n * n, lu);
  if (!factor_lu(n, lu, order)) return false;
  const auto subtract = [&](int64_t i, int64_t k) {
    for (int64_t j = 0; j < columns; ++j) x[i * columns + j] -= lu[i * n + k] * x[k * columns + j];
  };
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(b + order[i] * columns, columns, x + i * columns);
    for (int64_t k = 0; k < i; ++k) subtract(i, k);
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < n; ++k) subtract(i, k);
    for (int64_t j = 0; j < columns; ++j) x[i * columns + j] /= lu[i * n + i];
  }
  return true;
}

template <class T>
bool cholesky_large(int64_t n, T* l) {
  WorkVector<T> product;
  for (int64_t k = 0; k < n; k += kBlock) {
    poll_kernel();
    const int64_t width = std::min(kBlock, n - k), below = k + width;
    Block<T> corner = block(l + k * n + k, width, width, n);
    const Eigen::LLT<Matrix<T>, Eigen::Lower> llt(corner);
    if (llt.info() != Eigen::Success) return false;
    corner = llt.matrixL();
    if (below == n) break;
    WorkVector<T> left(size_t((n - below) * width));
    Block<T> rows = block(left.data(), n - below, width, width);
    rows = block(l + below * n + k, n - below, width, n);
    corner.template triangularView<Eigen::Lower>().transpose().template solveInPlace<Eigen::OnTheRight>(rows);
    block(l + below * n + k, n - below, width, n) = rows;
    for (int64_t j = below; j < n; j += kBlock) {  // only the lower triangle, in strips of columns
      const T* strip = left.data() + (j - below) * width;
      subtract_product(false, true, n - j, std::min(kBlock, n - j), width, strip, width, strip, width, l + j * n + j, n,
                       product);
    }
  }
  for (int64_t i = 0; i < n; ++i) std::fill(l + i * n + i + 1, l + i * n + n, T(0));
  return true;
}

}  // namespace

template <class T>
void solve_triangle(const Triangle<T>& t, int64_t columns, T* x) {
  if (columns == 0) return;
  WorkVector<T> product;
  const bool down = t.upper == t.transposed;  // op(a) is lower triangular
  const int64_t count = (t.n + kBlock - 1) / kBlock;
  for (int64_t i = 0; i < count; ++i) {
    if (count > 1) poll_kernel();
    const int64_t k = (down ? i : count - 1 - i) * kBlock, width = std::min(kBlock, t.n - k);
    Block<T> rows = block(x + k * columns, width, columns, columns);
    solve_diagonal_block(t, k, rows);
    const int64_t first = down ? k + width : 0, rest = down ? t.n - first : k;
    const T* beside = t.transposed ? t.a + k * t.n + first : t.a + first * t.n + k;
    subtract_product(t.transposed, false, rest, columns, width, beside, t.n, x + k * columns, columns,
                     x + first * columns, columns, product);
  }
}

template <class T>
bool factor_lu(int64_t n, T* a, int64_t* order) {
  WorkVector<T> product;
  std::iota(order, order + n, int64_t(0));
  if (n == 2) return factor_fixed<2>(a, order);
  if (n == 3) return factor_fixed<3>(a, order);
  if (n == 4) return factor_fixed<4>(a, order);
  for (int64_t k = 0; k < n; k += kBlock) {
    poll_kernel();
    const int64_t width = std::min(kBlock, n - k), right = k + width, rest = n - right;
    if (!factor_panel(n, k, width, a, order)) return false;
    if (rest == 0) break;
    const Block<T> corner = block(a + k * n + k, width, width, n);
    Block<T> above = block(a + k * n + right, width, rest, n);
    corner.template triangularView<Eigen::UnitLower>().solveInPlace(above);
    subtract_product(false, false, rest, rest, width, a + right * n + k, n, a + k * n + right, n, a + right * n + right,
                     n, product);
  }
  return true;
}

template <class T>
static bool solve_plain(int64_t n, int64_t columns, const T* a, const T* b, T* x) {
  if (n <= kTiny) return solve_tiny(n, columns, a, b, x);
  if (n > kSmall) return solve_large(n, columns, a, b, x);
  const Eigen::PartialPivLU<Matrix<T>> lu(Eigen::Map<const Matrix<T>>(a, n, n));
  for (int64_t i = 0; i < n; ++i)
    if (lu.matrixLU()(i, i) == T(0)) return false;
  Eigen::Map<Matrix<T>>(x, n, columns) = lu.solve(Eigen::Map<const Matrix<T>>(b, n, columns));
  return true;
}

// With a_ij = c_ij 2^(r_i + s_j) and c y = 2^-r_i b, x is 2^-s_j y. Each column of b is scaled to a largest element
// near 1 as well.
template <class T>
bool solve(int64_t n, int64_t columns, const T* a, const T* b, T* x) {
  if (n == 0 || columns == 0) return true;
  const Scaled<T> c(n, a);
  if (!c.changed()) return solve_plain(n, columns, a, b, x);
  WorkVector<T> right(size_t(n * columns));
  std::vector<int64_t> largest(size_t(columns), 0);
  for (int64_t j = 0; j < columns; ++j) {
    bool none = true;
    for (int64_t i = 0; i < n; ++i) {
      const T v = b[i * columns + j];
      if (v == T(0) || !std::isfinite(v)) continue;
      const int64_t exponent = std::ilogb(v) - c.row(i);
      largest[size_t(j)] = none ? exponent : std::max(largest[size_t(j)], exponent);
      none = false;
    }
    for (int64_t i = 0; i < n; ++i)
      right[size_t(i * columns + j)] = times_power(b[i * columns + j], -c.row(i) - largest[size_t(j)]);
  }
  if (!solve_plain(n, columns, c.data(), right.data(), x)) return false;
  for (int64_t k = 0; k < n * columns; ++k)
    x[k] = times_power(x[k], largest[size_t(k % columns)] - c.column(k / columns));
  return true;
}

template <class T>
bool cholesky(int64_t n, const T* a, T* l) {
  if (n == 0) return true;
  if (n > kSmall) return std::copy_n(a, n * n, l), cholesky_large(n, l);
  const Eigen::LLT<Matrix<T>, Eigen::Lower> llt(Eigen::Map<const Matrix<T>>(a, n, n));
  if (llt.info() != Eigen::Success) return false;
  Eigen::Map<Matrix<T>>(l, n, n) = llt.matrixL();
  return true;
}

template bool solve<float>(int64_t, int64_t, const float*, const float*, float*);
template bool solve<double>(int64_t, int64_t, const double*, const double*, double*);
template bool cholesky<float>(int64_t, const float*, float*);
template bool cholesky<double>(int64_t, const double*, double*);

template void solve_triangle<float>(const Triangle<float>&, int64_t, float*);
template void solve_triangle<double>(const Triangle<double>&, int64_t, double*);
template bool factor_lu<float>(int64_t, float*, int64_t*);
template bool factor_lu<double>(int64_t, double*, int64_t*);

}  // namespace pg::cpu
