// Matrix products: cuBLASLt for floats, a kernel of our own for integers (kernels/product.cuh).
#include <optional>

#include "tensor/cuda/blas.h"
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/layout.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// One operand: matrices of rows x cols in a batch, with memory of its own if it had to be copied or converted.
struct Operand {
  Operand(Stream& stream, const View& v, bool left, DType dtype) {
    Dims shape = v.shape(), strides = *v.strides;
    data = v.data;
    if (shape.size() == 1) {
      shape.insert(left ? 0 : 1, 1);
      strides.insert(left ? 0 : 1, left ? shape[1] * strides[0] : 1);
    }
    const int r = shape.size() - 2;
    rows = shape[r], cols = shape[r + 1];
    if (v.dtype() != dtype || !read_layout(strides[r], strides[r + 1])) {
      copy.emplace(stream, size_t(v.numel() * size_of(dtype)));
      const Type type{dtype, v.type->device, v.shape()};
      const Dims packed = contiguous_strides(v.shape());
      convert_view(stream, v, {&type, &packed, copy->data()});
      data = copy->data();
      strides = contiguous_strides(shape);
      read_layout(strides[r], strides[r + 1]);
    }
    for (int d = 0; d < r; ++d) batch.push_back(shape[d]), batch_strides.push_back(strides[d]);
  }

  // Returns false when neither stride is 1.
  bool read_layout(int64_t row_stride, int64_t col_stride) {
    if (cols == 1) col_stride = row_stride >= 1 ? 1 : col_stride;
    if (rows == 1) row_stride = col_stride == 1 ? cols : 1;
    transposed = !(col_stride == 1 && row_stride >= cols);
    ld = transposed ? col_stride : row_stride;
    return !transposed || (row_stride == 1 && col_stride >= rows);
  }
  int64_t row_stride() const { return transposed ? 1 : ld; }
  int64_t col_stride() const { return transposed ? ld : 1; }

  std::optional<Scratch> copy;
  const void* data;
  int64_t rows, cols, ld = 1;
  bool transposed = false;
  Dims batch, batch_strides;
};

// The products of a run of the innermost batch dim. Returns whether the activation was applied.
bool multiply_run(Stream& stream, Product p, const Operand& a, const Operand& b) {
  if (is_float(p.dtype) && multiply(stream, p)) return true;
  if (p.act != Product::Act::kNone) {
    p.act = Product::Act::kNone;
    return multiply_run(stream, p, a, b), false;
  }
  const kernels::ProductArgs args{p.a.data,
                                  p.b.data,
                                  p.c,
                                  p.bias,
                                  p.addend,
                                  p.batch,
                                  p.m,
                                  p.n,
                                  p.k,
                                  a.row_stride(),
                                  a.col_stride(),
                                  p.a.batch_stride,
                                  b.row_stride(),
                                  b.col_stride(),
                                  p.b.batch_stride};
  const std::string types = fmt::format("using T = {};\n", type_text(p.dtype));
  launch(stream, family_kernel(stream, "product", types, "product"), p.batch * p.m * p.n, &args);
  return true;
}

// Merges adjacent batch dims that both operands traverse with one stride.
void join_dims(Dims& batch, Dims& a, Dims& b) {
  for (int i = batch.size() - 2; i >= 0; --i) {
    if (a[i] != a[i + 1] * batch[i + 1] || b[i] != b[i + 1] * batch[i + 1]) continue;
    batch[i + 1] *= batch[i];
    batch.erase(i), a.erase(i), b.erase(i);
  }
}

const char* at(const void* data, int64_t offset, DType t) {
  return static_cast<const char*>(data) + offset * size_of(t);
}

// `addend`: null, or as large as the result. Returns whether the activation was applied; there is one only for products
// without a batch.
bool run_product(Stream& stream, const Operand& a, const Operand& b, const View& out, const void* bias,
                 Product::Act act, const void* addend = nullptr) {
  Dims batch;
  broadcast(a.batch, b.batch, &batch);
  Dims sa = broadcast_strides(a.batch, a.batch_strides, batch), sb = broadcast_strides(b.batch, b.batch_strides, batch);
  join_dims(batch, sa, sb);
  if (batch.empty()) batch.push_back(1), sa.push_back(0), sb.push_back(0);
  const int last = batch.size() - 1;
  const DType t = out.dtype();
  Product p{t, batch[last], a.rows, b.cols, a.cols, {}, {}, nullptr};
  p.bias = bias;
  p.act = act;
  const int64_t runs = numel(batch) / std::max<int64_t>(batch[last], 1);
  bool activated = true;
  for (int64_t q = 0; q < runs; ++q) {
    int64_t at_a = 0, at_b = 0, rest = q;
    for (int d = last - 1; d >= 0; --d) {
      at_a += rest % batch[d] * sa[d], at_b += rest % batch[d] * sb[d];
      rest /= batch[d];
    }
    p.a = {at(a.data, at_a, t), a.ld, sa[last], a.transposed};
    p.b = {at(b.data, at_b, t), b.ld, sb[last], b.transposed};
    p.c = const_cast<char*>(at(out.data, q * batch[last] * p.m * p.n, t));
    if (addend) p.addend = at(addend, q * batch[last] * p.m * p.n, t);
    activated = multiply_run(stream, p, a, b);
  }
  return activated;
}

void matmul(const KernelArgs& args) { run_matmul(stream_at(args.stream), args.in[0], args.in[1], args.out[0]); }

// A view without gaps: a copy if it has some.
class Packed {
 public:
  Packed(Stream& stream, const View& v) : view_(v) {
    if (!v || is_contiguous(v.shape(), *v.strides)) return;
    view_ = copy_.emplace(stream, v.dtype(), v).view;
    convert_view(stream, v, view_);
  }
  const View& view() const { return view_; }

 private:
  View view_;
  std::optional<Temporary> copy_;
};

void matmul_add(const KernelArgs& args) {
  Stream& stream = stream_at(args.stream);
  const View& out = args.out[0];
  if (out.numel() == 0) return;
  const Operand a(stream, args.in[0], true, out.dtype()), b(stream, args.in[1], false, out.dtype());
  if (a.cols == 0) return convert_view(stream, args.in[2], out);
  const Packed addend(stream, args.in[2]);
  run_product(stream, a, b, out, nullptr, Product::Act::kNone, addend.view().data);
}

// The part of an activation that cuBLASLt applies before it rounds. relu of a rounded number is the rounded relu. The
// library's gelu has fewer correct digits than float32 has.
Product::Act act_of(std::string_view activation, DType t) {
  const bool half = size_of(t) == 2;
  if (activation == "relu" && t != DType::kFloat64) return Product::Act::kRelu;
  return activation == "gelu_tanh" && half ? Product::Act::kGeluTanh : Product::Act::kNone;
}

// activation(x weight^T + bias) over the last dim of x.
void linear_with(const KernelArgs& args, const std::string& activation, double slope) {
  const View &w = args.in[1], &out = args.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(args.stream);
  const DType t = out.dtype();
  const int64_t n = w.size(0), k = w.size(1), m = out.numel() / n;
  if (k == 0) {
    fill_view(stream, out, 0);
    return finish_product(stream, out, Packed(stream, args.in[2]).view(), n, 1, activation, slope);
  }
  const Packed x(stream, args.in[0]), bias(stream, args.in[2]);
  const bool adds = !bias.view() || (t != DType::kFloat64 && bias.view().dtype() == t);
  const Product::Act act = adds ? act_of(activation, t) : Product::Act::kNone;
  const Placed flat(x.view(), {m, k}), turned(w, {k, n}, {(*w.strides)[1], (*w.strides)[0]}, 0), result(out, {m, n});
  const Operand a(stream, flat.view, true, t), b(stream, turned.view, false, t);
  const bool activated = run_product(stream, a, b, result.view, adds ? bias.view().data : nullptr, act);
  const bool done = activation.empty() || (activated && act != Product::Act::kNone);
  finish_product(stream, out, adds ? View{} : bias.view(), n, 1, done ? "" : activation, slope);
}

void linear(const KernelArgs& args) { linear_with(args, "", 0); }

void linear_act(const KernelArgs& args) {
  linear_with(args, args.attr<std::string>("activation"), args.attr<double>("slope"));
}

}  // namespace

void run_matmul(Stream& stream, const View& x, const View& y, const View& out) {
  if (out.numel() == 0) return;
  const Operand a(stream, x, true, out.dtype()), b(stream, y, false, out.dtype());
  if (a.cols == 0) return fill_view(stream, out, 0);
  run_product(stream, a, b, out, nullptr, Product::Act::kNone);
}

std::vector<KernelRow> product_rows() {
  return {{"matmul", matmul, kStridedInputs},        {"mm", matmul, kStridedInputs},
          {"bmm", matmul, kStridedInputs},           {"mv", matmul, kStridedInputs},
          {"linear", linear, kStridedInputs},        {"linear_act", linear_act, kStridedInputs},
          {"matmul_add", matmul_add, kStridedInputs}};
}

}  // namespace pg::cuda
