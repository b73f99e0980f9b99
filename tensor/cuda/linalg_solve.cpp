// Solvers, inverses and determinants: kernels of our own for small matrices (kernels/linalg.cuh), cuSOLVER for others.
// A singular matrix is reported late.
#include <limits>
#include <optional>

#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/layout.h"
#include "tensor/cuda/linalg.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

constexpr MatrixRefusal kSingular{"invertible matrices", "a singular one"};
constexpr MatrixRefusal kNotPositive{"positive definite matrices", "one that is not"};

Dims leading(const Dims& v, int drop) {
  Dims out;
  for (int i = 0; i + drop < v.size(); ++i) out.push_back(v[i]);
  return out;
}

// The matrices of a view: one, or one for each element of a batch.
Placed matrices_for(const View& a, Dims batch) {
  if (numel(leading(a.shape(), 2)) == 1) batch = {};
  for (int d = a.rank() - 2; d < a.rank(); ++d) batch.push_back(a.size(d));
  Dims shape = a.shape(), strides = *a.strides;
  while (shape.size() > batch.size()) shape.erase(0), strides.erase(0);
  return {a, batch, broadcast_strides(shape, strides, batch), 0};
}

// out = b, which broadcasts to its shape.
void copy_sides(Stream& stream, const View& b, const View& out) {
  const Placed spread(b, out.shape(), broadcast_strides(b.shape(), *b.strides, out.shape()), 0);
  convert_view(stream, spread.view, out);
}

void solve(const KernelArgs& args) {
  const View &a = args.in[0], &out = args.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(args.stream);
  const bool vector = out.rank() < a.rank();
  const Dims batch = leading(out.shape(), vector ? 1 : 2);
  copy_sides(stream, args.in[1], out);
  const Placed matrices = matrices_for(a, batch);
  const Lu lu(stream, matrices.view, out.dtype());
  report_failures(args, lu.info(), lu.count(), kSingular);
  lu.solve(out.data, numel(batch), vector ? 1 : out.shape().back());
}

void inverse(const KernelArgs& args) {
  const View& out = args.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(args.stream);
  const Lu lu(stream, args.in[0], out.dtype());
  fill_identity(stream, out);
  const MatrixBatch batch(out);
  lu.solve(out.data, batch.count, batch.columns);
  if (args.attr<bool>("check_errors")) return report_failures(args, lu.info(), lu.count(), kSingular);
  kernels::MatrixCopyArgs copy = {};
  copy.from = copy.to = out.data, copy.rows = copy.columns = batch.rows;
  copy.from_step = batch.size(), copy.from_row = batch.rows, copy.from_column = 1;
  copy.info = lu.info(), copy.failed = std::numeric_limits<double>::infinity();
  copy_matrices(stream, out.dtype(), batch.count, copy);
}

void determinant(const KernelArgs& args) {
  if (args.out[0].numel() == 0) return;
  const Lu lu(stream_at(args.stream), args.in[0], args.out[0].dtype());
  lu.determinants(args.out[0].data, args.out.size() > 1 ? args.out[1].data : nullptr);
}

void cholesky(const KernelArgs& args) {
  const View &a = args.in[0], &out = args.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(args.stream);
  const MatrixBatch batch(out);
  const int64_t n = batch.rows;
  if (n <= kernels::kSmallMatrix) {
    kernels::SystemArgs small = {};
    small.a = a.data, small.x = out.data, small.n = n, small.a_step = small.x_step = batch.size();
    small.report = refusal_number(args, kNotPositive), small.fault = stream.fault->get();
    return launch_blocks(stream, linalg_kernel(stream, out.dtype(), "cholesky_small"), batch.count, matrix_threads(n),
                         &small);
  }
  const Scratch info(stream, size_t(batch.count) * sizeof(int32_t));
  auto* failures = static_cast<int32_t*>(info.data());
  convert_view(stream, a, out);
  // The lower triangle of a row-major matrix is the upper one of a column-major matrix.
  factor_cholesky(stream, {out.dtype(), out.data, n, n, batch.count, batch.size()}, failures);
  report_failures(args, failures, batch.count, kNotPositive);
  kernels::MatrixCopyArgs copy = {};
  copy.from = copy.to = out.data, copy.rows = copy.columns = n;
  copy.from_step = batch.size(), copy.from_row = n, copy.from_column = 1, copy.triangle = -1;
  copy_matrices(stream, out.dtype(), batch.count, copy);
}

// The system of a triangular solve: e x = b, where e is a or its transpose, and columns of b count as right-hand sides.
struct Triangular {
  bool left, upper, transposed, unit;
  int64_t n, columns, count;
  explicit Triangular(const KernelArgs& a) {
    left = a.attr<bool>("left"), upper = a.attr<bool>("upper"), unit = a.attr<bool>("unitriangular");
    transposed = a.attr<bool>("transpose") == left;  // x op(a) = b is the transposed system
    const MatrixBatch out(a.out[0]);
    n = left ? out.rows : out.columns, columns = left ? out.columns : out.rows, count = out.count;
  }
};

// cuSOLVER solves with L U: for an upper triangle, L is the identity, and a lower one is the transpose of an upper one.
void solve_large(Stream& stream, const Triangular& t, const View& a, const View& out) {
  const MatrixBatch batch(a);
  const int64_t n = t.n;
  const DType type = out.dtype();
  const Scratch lu(stream, size_t(batch.count * n * n * size_of(type))), pivots(stream, size_t(n) * sizeof(int64_t));
  kernels::MatrixCopyArgs copy = {};
  copy.from = a.data, copy.to = lu.data(), copy.rows = copy.columns = n, copy.from_step = n * n;
  (t.upper ? copy.from_column : copy.from_row) = n, (t.upper ? copy.from_row : copy.from_column) = 1;
  copy.triangle = -1, copy.unit = t.unit;
  copy_matrices(stream, type, batch.count, copy);
  kernels::MatrixArgs order = {};
  order.out = pivots.data(), order.count = n, order.start = order.step = 1;
  launch(stream, family_kernel(stream, "matrix", "using T = int64_t;\n", "range"), n, &order);

  std::optional<Scratch> turned;
  kernels::MatrixCopyArgs turn = {};
  void* x = out.data;
  if (t.left) {
    x = turned.emplace(stream, size_t(out.numel() * size_of(type))).data();
    turn.from = out.data, turn.to = x, turn.rows = t.columns, turn.columns = n;
    turn.from_step = n * t.columns, turn.from_row = 1, turn.from_column = t.columns;
    copy_matrices(stream, type, t.count, turn);
  }
  for (int64_t q = 0; q < t.count; ++q) {
    const int64_t one = batch.count == 1 ? 0 : q;
    solve_lu(stream, t.upper == t.transposed,
             {type, static_cast<char*>(lu.data()) + one * n * n * size_of(type), n, n, 1, 0},
             static_cast<const int64_t*>(pivots.data()),
             {type, static_cast<char*>(x) + q * n * t.columns * size_of(type), n, t.columns, 1, 0});
  }
  if (!t.left) return;
  turn.from = x, turn.to = out.data, turn.rows = n, turn.columns = t.columns, turn.from_column = n;
  copy_matrices(stream, type, t.count, turn);
}

void solve_triangular(const KernelArgs& args) {
  const View &a = args.in[0], &out = args.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(args.stream);
  const Triangular t(args);
  const DType type = out.dtype();
  copy_sides(stream, args.in[1], out);
  // The matrices without gaps, in the dtype of the result.
  const Placed spread = matrices_for(a, leading(out.shape(), 2));
  const Type packed{type, a.type->device, spread.type.shape};
  const Dims strides = contiguous_strides(packed.shape);
  std::optional<Scratch> copy;
  View matrices = spread.view;
  if (a.dtype() != type || !is_contiguous(spread.type.shape, spread.strides)) {
    copy.emplace(stream, size_t(numel(packed.shape) * size_of(type)));
    matrices = {&packed, &strides, copy->data()};
    convert_view(stream, spread.view, matrices);
  }
  if (t.n > kernels::kSmallMatrix) return solve_large(stream, t, matrices, out);
  kernels::SystemArgs small = {};
  small.a = matrices.data, small.x = out.data;
  small.matrices = t.count, small.n = t.n, small.columns = t.columns;
  small.a_step = MatrixBatch(matrices).count == 1 ? 0 : t.n * t.n;
  small.row = t.transposed ? 1 : t.n, small.column = t.transposed ? t.n : 1;
  small.x_step = t.n * t.columns, small.x_row = t.left ? t.columns : 1, small.x_column = t.left ? 1 : t.n;
  small.down = t.upper == t.transposed, small.unit = t.unit;
  launch(stream, linalg_kernel(stream, type, "solve_triangular_small"), t.count * t.columns, &small);
}

}  // namespace

std::vector<KernelRow> linalg_solve_rows() {
  return {{"linalg_solve", solve, kMayWait},         {"linalg_solve_triangular", solve_triangular, kMayWait},
          {"linalg_inv", inverse, kMayWait},         {"linalg_det", determinant, kMayWait},
          {"linalg_slogdet", determinant, kMayWait}, {"linalg_cholesky", cholesky, kMayWait}};
}

}  // namespace pg::cuda
