#include "tensor/cuda/linalg.h"

#include "tensor/cuda/layout.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// Matrices as their transposes: a view of the same memory.
struct Turned : Placed {
  static Dims swapped(Dims v) {
    std::swap(v[v.size() - 1], v[v.size() - 2]);
    return v;
  }
  explicit Turned(const View& v) : Placed(v, swapped(v.shape()), swapped(*v.strides), 0) {}
};

}  // namespace

MatrixBatch::MatrixBatch(const Dims& shape) : rows(shape[shape.size() - 2]), columns(shape.back()) {
  for (int d = 0; d + 2 < shape.size(); ++d) count *= shape[d];
}

CUfunction linalg_kernel(Stream& stream, DType dtype, const char* name) {
  return family_kernel(stream, "linalg", fmt::format("using T = {};\n", type_text(dtype)), name);
}

void copy_matrices(Stream& stream, DType dtype, int64_t matrices, kernels::MatrixCopyArgs args) {
  args.count = matrices * args.rows * args.columns;
  if (args.to_step == 0) args.to_step = args.rows * args.columns;
  if (args.count > 0) launch(stream, linalg_kernel(stream, dtype, "copy_matrices"), args.count, &args);
}

void fill_identity(Stream& stream, const View& to) {
  const MatrixBatch batch(to);
  kernels::MatrixCopyArgs args = {};
  args.to = to.data, args.rows = batch.rows, args.columns = batch.columns, args.unit = 1;
  copy_matrices(stream, to.dtype(), batch.count, args);
}

int32_t refusal_number(const KernelArgs& a, const MatrixRefusal& refusal) {
  Refusal r;
  r.kind = Refusal::Kind::kAssert;
  r.op = &a.op;
  r.place = a.place;
  r.detail = fmt::format("bad argument 'a' (expected {}, got {})", refusal.expected, refusal.got);
  return report_number(r);
}

void report_failures(const KernelArgs& a, const int32_t* info, int64_t matrices, const MatrixRefusal& refusal) {
  Stream& stream = stream_at(a.stream);
  kernels::MatrixFactArgs args = {};
  args.matrices = matrices;
  args.info = info;
  args.report = refusal_number(a, refusal);
  args.fault = stream.fault->get();
  launch(stream, linalg_kernel(stream, a.in[0].dtype(), "report_failures"), matrices, &args);
}

Lu::Lu(Stream& stream, const View& a, DType dtype)
    : stream_(stream),
      dtype_(dtype),
      batch_(a),
      factors_(stream, size_t(batch_.count * batch_.size() * size_of(dtype))),
      pivots_(stream, size_t(batch_.count * batch_.rows) * sizeof(int64_t)),
      info_(stream, size_t(batch_.count) * sizeof(int32_t)),
      exponents_(stream, size_t(batch_.count * (2 * batch_.rows + 1)) * sizeof(int32_t)) {
  if (batch_.count * batch_.size() == 0) return;
  const Turned turned(a);
  const Type type{dtype, a.type->device, turned.type.shape};
  const Dims strides = contiguous_strides(type.shape);
  convert_view(stream, turned.view, {&type, &strides, factors_.data()});
  kernels::BalanceArgs balance = {};
  balance.a = factors_.data(), balance.exponents = exponents(), balance.n = batch_.rows;
  launch_blocks(stream, linalg_kernel(stream, dtype, "balance"), batch_.count, matrix_threads(batch_.rows), &balance);
  if (batch_.rows > kernels::kSmallMatrix) {
    factor_lu(stream, factors(), pivots(), static_cast<int32_t*>(info_.data()));
    return;
  }
  kernels::SystemArgs args = {};
  args.a = factors_.data(), args.pivots = pivots(), args.info = static_cast<int32_t*>(info_.data());
  args.n = batch_.rows, args.a_step = batch_.size();
  launch_blocks(stream, linalg_kernel(stream, dtype, "lu_small"), batch_.count, matrix_threads(args.n), &args);
}

void Lu::solve(void* x, int64_t matrices, int64_t columns) const {
  if (matrices * batch_.rows * columns == 0) return;
  const Scratch largest(stream_, size_t(matrices * columns) * sizeof(int32_t));
  kernels::BalanceArgs sides = {};
  sides.exponents = exponents(), sides.n = batch_.rows, sides.x = x,
  sides.largest = static_cast<int32_t*>(largest.data());
  sides.count = matrices * columns, sides.columns = columns, sides.step = batch_.count == 1 ? 0 : 2 * batch_.rows + 1;
  const CUfunction kernel = linalg_kernel(stream_, dtype_, "balance_sides");
  launch(stream_, kernel, sides.count, &sides);
  solve_balanced(x, matrices, columns);
  sides.solved = true;
  launch(stream_, kernel, sides.count, &sides);
}

void Lu::solve_balanced(void* x, int64_t matrices, int64_t columns) const {
  if (batch_.rows > kernels::kSmallMatrix) return solve_large(x, matrices, columns);
  kernels::SystemArgs args = {};
  args.a = factors_.data(), args.x = x, args.pivots = pivots();
  args.matrices = matrices, args.n = batch_.rows, args.columns = columns;
  args.a_step = step(), args.row = 1, args.column = args.n;
  args.x_step = args.n * columns, args.x_row = columns, args.x_column = 1;
  launch(stream_, linalg_kernel(stream_, dtype_, "solve_lu_small"), matrices * columns, &args);
}

// The library takes column-major right-hand sides.
void Lu::solve_large(void* x, int64_t matrices, int64_t columns) const {
  const int64_t n = batch_.rows;
  const Scratch turned(stream_, size_t(matrices * n * columns * size_of(dtype_)));
  kernels::MatrixCopyArgs copy = {};
  copy.from = x, copy.to = turned.data();
  copy.rows = columns, copy.columns = n;
  copy.from_step = n * columns, copy.from_row = 1, copy.from_column = columns;
  copy_matrices(stream_, dtype_, matrices, copy);
  Columns lu = factors();
  lu.step = step();
  solve_lu(stream_, false, lu, pivots(), {dtype_, turned.data(), n, columns, matrices, n * columns});
  copy.from = turned.data(), copy.to = x;
  copy.rows = n, copy.columns = columns;
  copy.from_column = n;
  copy_matrices(stream_, dtype_, matrices, copy);
}

void Lu::determinants(void* out, void* logarithms) const {
  kernels::MatrixFactArgs args = {};
  args.from = factors_.data(), args.pivots = pivots(), args.info = info(), args.exponents = exponents();
  args.matrices = batch_.count, args.rows = batch_.rows, args.step = batch_.size();
  args.out = out, args.out2 = logarithms;
  launch(stream_, linalg_kernel(stream_, dtype_, "determinants"), batch_.count, &args);
}

}  // namespace pg::cuda
