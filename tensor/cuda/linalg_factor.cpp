// QR, singular values and eigenvalues: small matrices by kernels/reflect.cuh and jacobi.cuh, others by cuSOLVER. Each
// matrix is divided by a power of two near its largest element, so that no square overflows or underflows; a matrix
// with NaN or inf is replaced by zeros, and gives NaN.
#include <algorithm>
#include <limits>
#include <optional>

#include "tensor/cuda/kernels/jacobi_arguments.cuh"
#include "tensor/cuda/kernels/reflect_arguments.cuh"
#include "tensor/cuda/linalg.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// Matrices as a kernel reads them: element (i, j) of matrix q is at q * step + i * row + j * column.
struct Source {
  const void* data;
  int64_t step, row, column;
};
Source column_major(const Columns& c) { return {c.data, c.step, 1, c.rows}; }
Source row_major(const View& v) {
  const MatrixBatch batch(v);
  return {v.data, batch.size(), batch.columns, 1};
}
Source transposed(const Source& s) { return {s.data, s.step, s.column, s.row}; }

// The factorization of a batch: its input, scales and failures.
class Factorization {
 public:
  Factorization(const KernelArgs& a, bool lower = false)
      : stream(stream_at(a.stream)),
        dtype(a.in[0].dtype()),
        batch(a.in[0]),
        scales_(stream, size_t(batch.count * size_of(dtype))),
        info_(stream, size_t(batch.count) * sizeof(int32_t)),
        input_(a.in[0]) {
    kernels::MatrixFactArgs args = {};
    const Source x = row_major(input_);
    args.from = x.data, args.step = x.step, args.row = x.row, args.column = x.column;
    args.rows = batch.rows, args.columns = batch.columns, args.matrices = batch.count;
    args.lower = lower, args.out = scales_.data();
    launch_blocks(stream, linalg_kernel(stream, dtype, "matrix_scales"), batch.count, kThreads, &args);
    driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(info_.data()), 0, size_t(batch.count) * sizeof(int32_t),
                             stream.handle);
  }
  int32_t* info() const { return static_cast<int32_t*>(info_.data()); }

  // to = the scaled matrices, column-major; the transposed ones if `turned`.
  void scaled(const Columns& to, bool turned) const {
    const Source x = turned ? transposed(row_major(input_)) : row_major(input_);
    kernels::MatrixCopyArgs args = {};
    args.from = x.data, args.from_step = x.step, args.from_row = x.column, args.from_column = x.row;
    args.to = to.data, args.to_step = to.step;
    args.rows = turned ? batch.rows : batch.columns, args.columns = turned ? batch.columns : batch.rows;
    args.scales = scales_.data(), args.scaling = -1;
    copy_matrices(stream, dtype, batch.count, args);
  }

  // What a result gets besides its elements.
  struct Finish {
    bool scaled = false, upper = false;
    const void* signs = nullptr;
    int64_t sign_count = 0;
    bool sign_rows = false;
  };
  // The row-major matrices `to` of rows x columns get their elements, or NaN.
  void finish(const Source& from, const View& to, int64_t rows, int64_t columns, const Finish& f) const {
    kernels::MatrixCopyArgs args = {};
    args.from = from.data, args.from_step = from.step, args.from_row = from.row, args.from_column = from.column;
    args.to = to.data, args.rows = rows, args.columns = columns;
    args.scales = scales_.data(), args.scaling = f.scaled;
    args.info = info(), args.failed = std::numeric_limits<double>::quiet_NaN();
    args.triangle = f.upper;
    args.signs = f.signs, args.sign_count = f.sign_count, args.sign_rows = f.sign_rows;
    copy_matrices(stream, dtype, batch.count, args);
  }
  void finish(const Source& from, const View& to, const Finish& f) const {
    const MatrixBatch sizes(to);
    finish(from, to, sizes.rows, sizes.columns, f);
  }

  // The factors that make the largest element of each of the first `count` columns positive.
  void find_signs(const Source& vectors, int64_t rows, int64_t count, const Scratch& signs) const {
    kernels::MatrixFactArgs args = {};
    args.from = vectors.data, args.step = vectors.step, args.row = vectors.row, args.column = vectors.column;
    args.rows = rows, args.columns = count, args.matrices = batch.count, args.out = signs.data();
    launch(stream, linalg_kernel(stream, dtype, "column_signs"), batch.count * count, &args);
  }
  size_t bytes(int64_t elements) const { return size_t(batch.count * elements * size_of(dtype)); }

  Stream& stream;
  const DType dtype;
  const MatrixBatch batch;

 private:
  const Scratch scales_, info_;
  const View& input_;
};

void run_small(const Factorization& f, const char* family, const char* name, unsigned threads, const void* args) {
  const std::string types = fmt::format("using T = {};\n", type_text(f.dtype));
  launch_blocks(f.stream, family_kernel(f.stream, family, types, name), f.batch.count, threads, args);
}

// The sizes for which a block with a thread for each of a few columns is faster than calls of cuSOLVER.
bool reflects_small(int64_t m, int64_t n) { return m <= 256 && n <= 64; }

void qr(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  if (a.in[0].numel() == 0) return fill_identity(stream, a.out[0]);
  const Factorization f(a);
  const int64_t m = f.batch.rows, n = f.batch.columns, least = std::min(m, n), k = a.out[0].shape().back();
  const int64_t step = m * std::max(n, k);  // the columns of r and q, one after the other in the same memory
  const Scratch memory(stream, f.bytes(step)), tau(stream, f.bytes(least));
  const Columns both{f.dtype, memory.data(), m, n, f.batch.count, step};
  f.scaled(both, false);
  const bool small = reflects_small(m, std::max(n, k));
  kernels::ReflectArgs args = {memory.data(), tau.data(), m, n, step, least};
  if (small)
    run_small(f, "reflect", "reflect_small", kernels::kReflectThreads, &args);
  else
    factor_qr(stream, both, tau.data());
  f.finish(column_major(both), a.out[1], {.scaled = true, .upper = true});
  const Columns q{f.dtype, memory.data(), m, k, f.batch.count, step};
  args.n = k;
  if (small)
    run_small(f, "reflect", "make_q_small", kernels::kReflectThreads, &args);
  else
    make_q(stream, q, least, tau.data());
  f.finish(column_major(q), a.out[0], {});
}

void run_jacobi(const Factorization& f, const kernels::JacobiArgs& args) {
  run_small(f, "jacobi", "jacobi_small", kernels::kJacobi, &args);
}

// cuSOLVER takes matrices with as many rows as columns or more. A wide a is the transpose of such a one, whose u is the
// v of a.
void svd(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  const bool vectors = a.out.size() > 1;
  const View& values = a.out[vectors ? 1 : 0];
  if (a.in[0].numel() == 0) {
    if (vectors) fill_identity(stream, a.out[0]), fill_identity(stream, a.out[2]);
    return;
  }
  const Factorization f(a);
  const bool wide = f.batch.rows < f.batch.columns, full = vectors && a.attr<bool>("full_matrices");
  const int64_t m = std::max(f.batch.rows, f.batch.columns), n = std::min(f.batch.rows, f.batch.columns);
  const int64_t kept = full ? m : n;
  const Scratch memory(stream, f.bytes(m * n)), s(stream, f.bytes(n));
  const Columns x{f.dtype, memory.data(), m, n, f.batch.count, m * n};
  f.scaled(x, wide);
  std::optional<Scratch> left, right;
  Svd out{
      {f.dtype, nullptr, m, kept, f.batch.count, m * kept}, {f.dtype, nullptr, n, n, f.batch.count, n * n}, s.data()};
  if (vectors) {
    out.u.data = left.emplace(stream, f.bytes(m * kept)).data();
    out.vt.data = right.emplace(stream, f.bytes(n * n)).data();
  }
  const bool small = m <= kernels::kJacobi;
  if (small)
    run_jacobi(f, {x.data, s.data(), out.u.data, out.vt.data, m, n, kept, 0});
  else
    find_singular_values(stream, x, out, f.info());
  f.finish({s.data(), n, 1, 0}, values, n, 1, {.scaled = true});
  if (!vectors) return;
  const Source tall = column_major(out.u);
  const Source square = small ? transposed(column_major(out.vt)) : column_major(out.vt);  // v, or its transpose
  const Source u = wide ? transposed(square) : tall, vh = wide ? transposed(tall) : square;
  const Scratch signs(stream, f.bytes(n));
  f.find_signs(u, f.batch.rows, n, signs);
  f.finish(u, a.out[0], {.signs = signs.data(), .sign_count = n});
  f.finish(vh, a.out[2], {.signs = signs.data(), .sign_count = n, .sign_rows = true});
}

void eigh(const KernelArgs& a) {
  const int64_t n = a.in[0].shape().back();
  if (a.in[0].numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const bool vectors = a.out.size() > 1;
  const Factorization f(a, true);
  const Scratch memory(stream, f.bytes(n * n)), values(stream, f.bytes(n));
  const Columns x{f.dtype, memory.data(), n, n, f.batch.count, n * n};
  f.scaled(x, true);  // the lower triangle of a is the upper one of its transpose
  if (n <= kernels::kJacobi)
    run_jacobi(f, {x.data, values.data(), nullptr, vectors ? x.data : nullptr, n, n, n, 1});
  else
    find_eigenvalues(stream, x, vectors, values.data(), f.info());
  f.finish({values.data(), n, 1, 0}, a.out[0], n, 1, {.scaled = true});
  if (!vectors) return;
  const Scratch signs(stream, f.bytes(n));
  f.find_signs(column_major(x), n, n, signs);
  f.finish(column_major(x), a.out[1], {.signs = signs.data(), .sign_count = n});
}

}  // namespace

std::vector<KernelRow> linalg_factor_rows() {
  return {{"linalg_qr", qr, kMayWait},
          {"linalg_svd", svd, kMayWait},
          {"linalg_svdvals", svd, kMayWait},
          {"linalg_eigh", eigh, kMayWait},
          {"linalg_eigvalsh", eigh, kMayWait}};
}

}  // namespace pg::cuda
