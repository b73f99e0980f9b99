#include "tensor/cpu/linalg/functions.h"
#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/linalg/scaled.h"
#include "tensor/cpu/linalg/solve.h"
#include "tensor/cpu/scratch.h"

#include <Eigen/LU>
#include <cmath>
#include <limits>
#include <span>

namespace pg::cpu {
namespace {

// The sign of a permutation, which it destroys.
int sign_of(int64_t n, int64_t* order) {
  int sign = 1;
  for (int64_t i = 0; i < n; ++i)
    for (; order[i] != i; sign = -sign) std::swap(order[i], order[order[i]]);
  return sign;
}

// L U = P a with the sign of P; no pivots when a is singular.
template <class T>
class Pivots {
 public:
  Pivots(int64_t n, const T* a) : memory_(n > kTiny ? n * n : 0) {
    const Scratch<int64_t> order_memory(n > kTiny ? n : 0);
    int64_t tiny_order[kTiny], *order = n > kTiny ? order_memory.get() : tiny_order;
    T* lu = n > kTiny ? memory_.get() : tiny_;
    std::copy_n(a, n * n, lu);
    if (!factor_lu(n, lu, order)) return;
    sign = T(sign_of(n, order));
    for (int64_t i = 1; i < n; ++i) lu[i] = lu[i * n + i];
    pivots = {lu, size_t(n)};
  }
  Pivots(const Pivots&) = delete;
  Product<T> product() const {
    Product<T> out{sign};
    for (const T p : pivots) out.multiply(p);
    return out;
  }
  // The same bits, or 0 where a product on the way leaves the range of T.
  T plain_product() const {
    T out = sign;
    for (const T p : pivots) out = std::isnormal(out * p) ? out * p : T(0);
    return out;
  }

  std::span<const T> pivots;
  T sign = 0;

 private:
  T tiny_[kTiny * kTiny];
  Scratch<T> memory_;  // of a matrix that is not tiny
};

// Whether the inverse has most of its digits: no pivot is much smaller than another one.
template <class T>
bool is_regular(std::span<const T> pivots) {
  T low = std::numeric_limits<T>::infinity(), high = 0;
  for (const T p : pivots) low = std::min(low, std::abs(p)), high = std::max(high, std::abs(p));
  return low > high * T(1e-2);
}

// cof(a)^T = adj(a) = det(P) det(Q) Q adj(U) L^-1 P for P a Q = L U with complete pivoting. With U = [V u; 0 p], where
// V is regular unless all cofactors are 0, adj(U) = det(V) [p V^-1, -V^-1 u; 0, 1]. So nothing is divided by a pivot p
// of 0. Returns the power of two that the cofactors in `out` lack.
template <class T>
int64_t cofactors_by_complete_pivoting(int64_t n, const T* a, T* out) {
  const Eigen::FullPivLU<Columns<T>> f{Columns<T>(ConstRows<T>(a, n, n))};
  const Columns<T>& lu = f.matrixLU();
  const auto v = lu.topLeftCorner(n - 1, n - 1).template triangularView<Eigen::Upper>();
  Product<T> volume;
  for (int64_t i = 0; i < n - 1; ++i) volume.multiply(lu(i, i));
  if (volume.mantissa == T(0)) return std::fill_n(out, n * n, T(0)), 0;
  Columns<T> adjugate = Columns<T>::Zero(n, n);
  adjugate.topLeftCorner(n - 1, n - 1).setIdentity();
  adjugate.topLeftCorner(n - 1, n - 1) *= lu(n - 1, n - 1);
  adjugate.topRightCorner(n - 1, 1) = -lu.topRightCorner(n - 1, 1);
  v.solveInPlace(adjugate.topRows(n - 1));
  adjugate(n - 1, n - 1) = 1;
  const T sign = T(f.permutationP().determinant() * f.permutationQ().determinant());
  lu.template triangularView<Eigen::UnitLower>().template solveInPlace<Eigen::OnTheRight>(adjugate);
  Rows<T>(out, n, n) = (f.permutationQ() * (adjugate * (sign * volume.mantissa)) * f.permutationP()).transpose();
  return volume.exponent;
}

// The cofactors of 3 x 3, from the elements of the other rows and columns in cyclic order, which have the right sign.
template <class T>
void cofactors_3(const T* a, T* out) {
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      const T *above = a + (i + 1) % 3 * 3, *below = a + (i + 2) % 3 * 3;
      const int left = (j + 1) % 3, right = (j + 2) % 3;
      out[i * 3 + j] = T(double(above[left]) * below[right] - double(above[right]) * below[left]);
    }
}

// The cofactors of a matrix without extreme elements, but for a power of two, which is returned.
template <class T>
int64_t scaled_cofactors(int64_t n, const T* a, T* out) {
  if (n == 3) return cofactors_3(a, out), 0;
  const Pivots<T> f(n, a);
  if (!is_regular(f.pivots) || f.sign == T(0)) return cofactors_by_complete_pivoting(n, a, out);
  const Scratch<T> memory(2 * n * n);
  Rows<T> identity(memory, n, n), inverse(memory + n * n, n, n);
  identity.setIdentity();
  solve(n, n, a, identity.data(), inverse.data());
  const Product<T> product = f.product();
  Rows<T>(out, n, n) = inverse.transpose() * product.mantissa;
  return product.exponent;
}

}  // namespace

template <class T>
T determinant(int64_t n, const T* a) {
  const Scaled<T> s(n, a);
  const Pivots<T> f(n, s.data());
  if (const T plain = f.plain_product(); std::isnormal(plain) && !s.changed()) return plain;
  Product<T> product = f.product();
  product.exponent += s.total();
  return product.value();
}

template <class T>
LogDeterminant<T> log_determinant(int64_t n, const T* a) {
  const Scaled<T> s(n, a);
  const Pivots<T> f(n, s.data());
  if (f.sign == T(0)) return {T(0), -std::numeric_limits<T>::infinity()};
  LogDeterminant<T> out{f.sign, T(double(s.total()) * 0.693147180559945309417)};
  for (const T p : f.pivots) {
    out.log += std::log(std::abs(p));
    out.sign *= std::isnan(p) ? p : std::copysign(T(1), p);
  }
  return out;
}

template <class T>
void cofactors(int64_t n, const T* a, T* out) {
  if (n == 0) return;
  if (!all_finite(a, n * n)) return fill_nan(out, n * n);
  const Scaled<T> s(n, a);
  const int64_t exponent = scaled_cofactors(n, s.data(), out) + s.total();
  const T factor = times_power(T(1), exponent);
  if (!s.changed() && std::isnormal(factor)) return void(Rows<T>(out, n, n) *= factor);
  for (int64_t k = 0; k < n * n; ++k) out[k] = times_power(out[k], exponent - s.row(k / n) - s.column(k % n));
}

template float determinant<float>(int64_t, const float*);
template double determinant<double>(int64_t, const double*);
template LogDeterminant<float> log_determinant<float>(int64_t, const float*);
template LogDeterminant<double> log_determinant<double>(int64_t, const double*);
template void cofactors<float>(int64_t, const float*, float*);
template void cofactors<double>(int64_t, const double*, double*);

}  // namespace pg::cpu
