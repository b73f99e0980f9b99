// Kernels of solvers, inverses, determinants and the matrix exponential.
#include "tensor/cpu/linalg/functions.h"
#include "tensor/cpu/linalg/kernels.h"
#include "tensor/cpu/linalg/solve.h"
#include "tensor/cpu/register.h"
#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

using cpu::Batch;

Dims leading(const Dims& v, int drop) {
  Dims out;
  for (int i = 0; i + drop < v.size(); ++i) out.push_back(v[i]);
  return out;
}

// Where the two operands of each solve begin, for every batch index of the result.
class Pairs {
 public:
  Pairs(const Dims& batch, const View& a, const View& b, int b_dims)
      : batch_(batch), a_(strides(batch, a, 2)), b_(strides(batch, b, b_dims)) {}
  int64_t a(int64_t q) const { return at(q, a_); }
  int64_t b(int64_t q) const { return at(q, b_); }

 private:
  static Dims strides(const Dims& batch, const View& v, int matrix_dims) {
    return broadcast_strides(leading(v.shape(), matrix_dims), leading(contiguous_strides(v.shape()), matrix_dims),
                             batch);
  }
  int64_t at(int64_t q, const Dims& strides) const {
    int64_t offset = 0;
    for (int i = batch_.size() - 1; i >= 0; q /= batch_[i--]) offset += q % batch_[i] * strides[i];
    return offset;
  }
  Dims batch_, a_, b_;
};

// Calls f(n, columns, a, b, x) with typed pointers for each solve of a batch, where a is n x n.
template <class F>
void for_solves(const KernelArgs& args, int64_t n, int64_t columns, bool vector, const F& f) {
  const View &a = args.in[0], &b = args.in[1], &out = args.out[0];
  if (out.numel() == 0) return;
  const int b_dims = vector ? 1 : 2;
  const Dims batch = leading(out.shape(), b_dims);
  const Pairs pairs(batch, a, b, b_dims);
  cpu::visit_real(out.dtype(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const cpu::Converted<T> ea(a, out.dtype()), eb(b, out.dtype());
    cpu::each_matrix(numel(batch), double(n) * double(n) * double(n + columns), [&](int64_t q) {
      f(ea.data() + pairs.a(q), eb.data() + pairs.b(q), out.as<T>() + q * n * columns);
    });
  });
}

void solve(const KernelArgs& args) {
  const View &a = args.in[0], &b = args.in[1];
  const bool vector = is_vector_side(a.shape(), b.shape());
  const int64_t n = a.shape().back(), columns = vector ? 1 : b.shape().back();
  for_solves(args, n, columns, vector, [&](const auto* pa, const auto* pb, auto* x) {
    if (!cpu::solve(n, columns, pa, pb, x)) bad_argument(args.op.name, "a", "invertible matrices", "a singular one");
  });
}

void solve_triangular(const KernelArgs& args) {
  const bool left = args.attr<bool>("left"), upper = args.attr<bool>("upper"),
             transposed = args.attr<bool>("transpose") == left, unit = args.attr<bool>("unitriangular");
  const int64_t n = args.in[0].shape().back();
  const Batch b(args.in[1]);
  const int64_t columns = left ? b.columns : b.rows;
  for_solves(args, n, columns, false, [&](const auto* pa, const auto* pb, auto* x) {
    using T = std::remove_pointer_t<decltype(x)>;
    const cpu::Triangle<T> triangle{.a = pa, .n = n, .upper = upper, .transposed = transposed, .unit = unit};
    if (left) {
      std::copy_n(pb, b.size(), x);
      return cpu::solve_triangle(triangle, columns, x);
    }
    const cpu::CountedMatrices counted(b.size(), sizeof(T));
    cpu::Matrix<T> turned = cpu::ConstRows<T>(pb, b.rows, b.columns).transpose();  // x op(a) = b, transposed
    cpu::solve_triangle(triangle, columns, turned.data());
    cpu::Rows<T>(x, b.rows, b.columns) = turned.transpose();
  });
}

// Calls f(n, a, out, q) for each n x n matrix of a batch, number q, whose results have the same number of elements.
template <class T, class F>
void each_square(const KernelArgs& args, const F& f) {
  const View& a = args.in[0];
  const int64_t n = a.shape().back(), count = numel(leading(a.shape(), 2));
  const int64_t size = count == 0 ? 0 : args.out[0].numel() / count;
  cpu::each_matrix(count, cpu::cubic_work(n, n),
                   [&](int64_t q) { f(n, a.as<const T>() + q * n * n, args.out[0].as<T>() + q * size, q); });
}

// The same for the dtype of the matrices.
template <class F>
void for_square(const KernelArgs& args, const F& f) {
  cpu::visit_real(args.in[0].dtype(), [&](auto* tag) { each_square<std::remove_pointer_t<decltype(tag)>>(args, f); });
}

void inverse(const KernelArgs& args) {
  const bool refuses = args.attr<bool>("check_errors");
  const int64_t size = args.in[0].shape().back();
  cpu::visit_real(args.in[0].dtype(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const cpu::Scratch<T> identity(times(size, size));
    cpu::Rows<T>(identity, size, size).setIdentity();
    each_square<T>(args, [&](int64_t n, const T* a, T* out, int64_t) {
      if (cpu::solve<T>(n, n, a, identity, out)) return;
      if (refuses) bad_argument(args.op.name, "a", "invertible matrices", "a singular one");
      std::fill_n(out, n * n, std::numeric_limits<T>::infinity());
    });
  });
}

void cholesky(const KernelArgs& args) {
  for_square(args, [&](int64_t n, const auto* a, auto* out, int64_t) {
    if (!cpu::cholesky(n, a, out)) bad_argument(args.op.name, "a", "positive definite matrices", "one that is not");
  });
}

void determinant(const KernelArgs& args) {
  for_square(args, [](int64_t n, const auto* a, auto* out, int64_t) { *out = cpu::determinant(n, a); });
}

void log_determinant(const KernelArgs& args) {
  for_square(args, [&](int64_t n, const auto* a, auto* sign, int64_t q) {
    using T = std::remove_pointer_t<decltype(sign)>;
    const cpu::LogDeterminant<T> d = cpu::log_determinant(n, a);
    *sign = d.sign;
    args.out[1].as<T>()[q] = d.log;
  });
}

void cofactors(const KernelArgs& args) {
  for_square(args, [](int64_t n, const auto* a, auto* out, int64_t) { cpu::cofactors(n, a, out); });
}

void matrix_exp(const KernelArgs& args) {
  for_square(args, [](int64_t n, const auto* a, auto* out, int64_t) {
    const cpu::CountedMatrices counted(times(12, times(n, n)), sizeof *out);
    cpu::matrix_exp(n, a, out);
  });
}

}  // namespace

void add_solver_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"linalg_solve", solve},         {"linalg_solve_triangular", solve_triangular},
      {"linalg_inv", inverse},         {"linalg_cholesky", cholesky},
      {"linalg_det", determinant},     {"linalg_slogdet", log_determinant},
      {"linalg_cofactors", cofactors}, {"linalg_matrix_exp", matrix_exp},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
