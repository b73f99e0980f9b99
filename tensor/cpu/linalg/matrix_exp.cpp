// Scaling and squaring with diagonal Padé approximants (Higham, The scaling and squaring method for the matrix
// exponential revisited, 2005).
#include <array>
#include <cmath>

#include "tensor/cpu/linalg/functions.h"
#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/linalg/solve.h"

namespace pg::cpu {
namespace {

// The largest 1-norm for which the approximant of a degree has full precision (Higham, table 2.3 and section 3).
struct Approximant {
  int degree;
  double norm;
};
template <class T>
constexpr auto kApproximants = std::array<Approximant, 5>{{{3, 1.495585217958292e-2},
                                                           {5, 2.539398330063230e-1},
                                                           {7, 9.504178996162932e-1},
                                                           {9, 2.097847961257068},
                                                           {13, 5.371920351148152}}};
template <>
constexpr auto kApproximants<float> =
    std::array<Approximant, 3>{{{3, 4.258730016922831e-1}, {5, 1.880152677804762}, {7, 3.925724783138660}}};

// The coefficients of the numerator, of which the first is 1.
std::array<double, 14> coefficients(int degree) {
  std::array<double, 14> b{1};
  for (int j = 1; j <= degree; ++j)
    b[size_t(j)] = b[size_t(j - 1)] * (degree - j + 1) / (double(2 * degree - j + 1) * j);
  return b;
}

template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  const int64_t n = a.rows();
  Matrix<T> out(n, n);
  gemm<T>(false, false, n, n, n, a.data(), n, b.data(), n, out.data(), n);
  return out;
}

// The approximant p(a) / p(-a) with p(a) = even + odd, of which odd has the factor a.
template <class T>
Matrix<T> approximant(int degree, const Matrix<T>& a) {
  const std::array<double, 14> b = coefficients(degree);
  const int64_t n = a.rows();
  const Matrix<T> identity = Matrix<T>::Identity(n, n);
  std::array<Matrix<T>, 5> squares;  // a^2, a^4, … from index 1 on
  const int powers = degree == 13 ? 3 : degree / 2;
  squares[0] = identity;
  squares[1] = product(a, a);
  for (int i = 2; i <= powers; ++i) squares[size_t(i)] = product(squares[size_t(i - 1)], squares[1]);
  const auto sum = [&](int first, int from, int to) {  // of b[first + 2 i] a^(2 i)
    Matrix<T> out = Matrix<T>::Zero(n, n);
    for (int i = from; i <= to; ++i) out += T(b[size_t(first + 2 * i)]) * squares[size_t(i)];
    return out;
  };
  Matrix<T> even = sum(0, 0, powers), odd = sum(1, 0, powers);
  if (degree == 13) {  // a^6 times the rest
    even += product(squares[3], sum(6, 1, 3));
    odd += product(squares[3], sum(7, 1, 3));
  }
  odd = product(a, odd);
  const Matrix<T> numerator = even + odd, denominator = even - odd;
  Matrix<T> out(n, n);
  if (!solve(n, n, denominator.data(), numerator.data(), out.data())) fill_nan(out.data(), n * n);
  return out;
}

}  // namespace

template <class T>
void matrix_exp(int64_t n, const T* a, T* out) {
  if (n == 0) return;
  Matrix<T> x = ConstRows<T>(a, n, n);
  const double norm = x.template cast<double>().cwiseAbs().colwise().sum().maxCoeff();
  if (!all_finite(a, n * n) || !std::isfinite(norm)) return fill_nan(out, n * n);
  const auto& choices = kApproximants<T>;
  const auto* choice = choices.data();
  while (choice->norm < norm && choice + 1 < choices.data() + choices.size()) ++choice;
  const int squarings = norm > choice->norm ? std::max(0, std::ilogb(norm / choice->norm) + 1) : 0;
  x *= T(std::ldexp(1.0, -squarings));
  x = approximant(choice->degree, x);
  for (int i = 0; i < squarings; ++i) {
    poll_kernel();
    x = product(x, x);
  }
  Rows<T>(out, n, n) = x;
}

template void matrix_exp<float>(int64_t, const float*, float*);
template void matrix_exp<double>(int64_t, const double*, double*);

}  // namespace pg::cpu
