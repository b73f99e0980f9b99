// The exponential by scaling and squaring with a diagonal Padé approximant (Higham, The scaling and squaring method
// for the matrix exponential revisited, 2005). All matrices get the highest degree that the CPU's kernel uses.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "tensor/cuda/linalg.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// The coefficients of the numerator, of which the first is 1.
std::array<double, 14> coefficients(int degree) {
  std::array<double, 14> b{1};
  for (int j = 1; j <= degree; ++j)
    b[size_t(j)] = b[size_t(j - 1)] * (degree - j + 1) / (double(2 * degree - j + 1) * j);
  return b;
}

class Exponential {
 public:
  explicit Exponential(const KernelArgs& a)
      : stream_(stream_at(a.stream)),
        x_(a.in[0]),
        out_(a.out[0]),
        batch_(x_),
        wide_(x_.dtype() == DType::kFloat64),
        bytes_((size_t(x_.numel() * size_of(x_.dtype())) + kAlignment - 1) / kAlignment * kAlignment),
        memory_(stream_, bytes_ * kBuffers),
        scales_(stream_, size_t(batch_.count) * sizeof(double)),
        squarings_(stream_, size_t(batch_.count) * sizeof(int32_t)) {}

  void run() const {
    const int most = scale();
    multiply(kX, kX, kSquare);
    multiply(kSquare, kSquare, kFourth);
    multiply(kFourth, kSquare, kSixth);
    approximant();
    const Lu denominator(stream_, view(kRest), x_.dtype());
    denominator.solve(at(kX), batch_.count, batch_.rows);
    for (int i = 0; i < most; ++i) {
      multiply(kX, kX, kRest);
      square_more(i);
    }
    // A matrix that is not finite has a scale of NaN.
    kernels::MatrixCopyArgs copy = matrix_copy(at(kX), out_.data);
    copy.scales = scales_.data();
    copy.info = denominator.info(), copy.failed = std::numeric_limits<double>::quiet_NaN();
    copy_matrices(stream_, x_.dtype(), batch_.count, copy);
  }

 private:
  static constexpr size_t kAlignment = 256;  // of the buffers
  enum Buffer { kX, kSquare, kFourth, kSixth, kMore, kRest, kEven, kOdd, kBuffers };
  struct Term {
    Buffer buffer;
    double factor;
  };

  void* at(Buffer b) const { return static_cast<char*>(memory_.data()) + size_t(b) * bytes_; }
  View view(Buffer b) const { return {x_.type, x_.strides, at(b)}; }
  void multiply(Buffer a, Buffer b, Buffer to) const { run_matmul(stream_, view(a), view(b), view(to)); }
  CUfunction kernel(const char* name) const { return linalg_kernel(stream_, x_.dtype(), name); }
  kernels::MatrixCopyArgs matrix_copy(const void* from, void* to) const {
    kernels::MatrixCopyArgs copy = {};
    copy.from = from, copy.to = to, copy.rows = copy.columns = batch_.rows;
    copy.from_step = batch_.size(), copy.from_row = batch_.rows, copy.from_column = 1;
    return copy;
  }

  // kX = the matrices with norms for which the approximant has full precision. Returns the largest number of squarings
  // that this costs, for which the host waits.
  int scale() const {
    kernels::MatrixFactArgs args = {};
    args.from = x_.data, args.rows = args.columns = batch_.rows, args.step = batch_.size();
    args.out = scales_.data(), args.squarings = static_cast<int32_t*>(squarings_.data());
    args.limit = wide_ ? 5.371920351148152 : 3.925724783138660;  // table 2.3 and section 3
    launch_blocks(stream_, kernel("squarings"), batch_.count, kThreads, &args);
    kernels::MatrixCopyArgs copy = matrix_copy(x_.data, at(kX));
    copy.scales = scales_.data(), copy.scaling = -1;
    copy_matrices(stream_, x_.dtype(), batch_.count, copy);
    std::vector<int32_t> counts(size_t(batch_.count));
    driver().cuMemcpyDtoHAsync(counts.data(), reinterpret_cast<CUdeviceptr>(squarings_.data()),
                               counts.size() * sizeof(int32_t), stream_.handle);
    stream_.wait();
    return std::max(0, *std::max_element(counts.begin(), counts.end()));
  }

  // to = the sum of the terms and of `identity` times I.
  void combine(Buffer to, std::span<const Term> terms, double identity) const {
    kernels::CombinationArgs args = combination(to);
    args.identity = identity;
    size_t i = 0;
    for (const Term& t : terms) args.matrices[i] = at(t.buffer), args.factors[i++] = t.factor;
    launch(stream_, kernel("combine"), args.count, &args);
  }
  // kX = kRest, its square, where a matrix still needs it after `done` squarings.
  void square_more(int done) const {
    kernels::CombinationArgs args = combination(kX);
    args.matrices[0] = at(kRest);
    args.squarings = static_cast<const int32_t*>(squarings_.data()), args.done = done;
    launch(stream_, kernel("combine"), args.count, &args);
  }
  kernels::CombinationArgs combination(Buffer to) const {
    kernels::CombinationArgs args = {};
    args.to = at(to), args.count = x_.numel(), args.n = batch_.rows;
    return args;
  }

  // The half of the numerator that starts with the coefficient `first`, without the factor x of the odd one: powers up
  // to x^6, and for degree 13 x^6 times more of them. Overwrites kMore and kRest.
  void half(Buffer to, const std::array<double, 14>& b, size_t first) const {
    if (wide_) {
      combine(kMore, std::array<Term, 3>{{{kSquare, b[first + 8]}, {kFourth, b[first + 10]}, {kSixth, b[first + 12]}}},
              0);
      multiply(kSixth, kMore, kRest);
    }
    const Term terms[] = {{kSquare, b[first + 2]}, {kFourth, b[first + 4]}, {kSixth, b[first + 6]}, {kRest, 1}};
    combine(to, std::span(terms).first(wide_ ? 4 : 3), b[first]);
  }

  // kX = p(x) and kRest = p(-x) with p(x) = even + odd, of which odd has the factor x. The approximant is their
  // quotient.
  void approximant() const {
    const std::array<double, 14> b = coefficients(wide_ ? 13 : 7);
    half(kEven, b, 1);
    multiply(kX, kEven, kOdd);
    half(kEven, b, 0);
    combine(kX, std::array<Term, 2>{{{kEven, 1}, {kOdd, 1}}}, 0);
    combine(kRest, std::array<Term, 2>{{{kEven, 1}, {kOdd, -1}}}, 0);
  }

  Stream& stream_;
  const View &x_, &out_;
  const MatrixBatch batch_;
  const bool wide_;
  const size_t bytes_;
  const Scratch memory_, scales_, squarings_;
};

void matrix_exp(const KernelArgs& a) {
  if (a.in[0].numel() > 0) Exponential(a).run();
}

}  // namespace

std::vector<KernelRow> matrix_exp_rows() { return {{"linalg_matrix_exp", matrix_exp, kMayWait}}; }

}  // namespace pg::cuda
