// Kernels of matrix products with strided operands, and of linear.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/integers_simd.h"
#include "tensor/cpu/gemm/prepared.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

// The elements of a view as row-major array of another dtype. It owns memory only if it had to convert or copy.
class Contiguous {
 public:
  Contiguous(const View& v, DType dtype) {
    const void* data = v.data;
    if (!is_contiguous(v.shape(), *v.strides)) {
      packed_.resize(size_t(v.numel()) * size_t(size_of(v.dtype())));
      cpu::copy_strided(v, packed_.data());
      data = packed_.data();
    }
    if (v.dtype() != dtype) {
      converted_.resize(size_t(v.numel()) * size_t(size_of(dtype)));
      cpu::convert(v.dtype(), data, dtype, converted_.data(), v.numel());
      data = converted_.data();
    }
    data_ = data;
  }
  const void* data() const { return data_; }

 private:
  cpu::WorkVector<char> packed_, converted_;
  const void* data_;
};

// One operand of a product: matrices of rows x cols at `data`, the batch strides, and the layout of a matrix.
struct Operand {
  const char* data;
  int64_t rows, cols, ld;
  bool transposed;
  Dims batch, batch_strides;
};

// Reads the strides of the last two dims as a layout that gemm accepts. Returns false when neither stride is 1.
bool read_layout(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, Operand* o) {
  if (cols == 1) col_stride = row_stride >= 1 ? 1 : col_stride;
  if (rows == 1) row_stride = col_stride == 1 ? cols : 1;
  o->rows = rows;
  o->cols = cols;
  o->transposed = !(col_stride == 1 && row_stride >= cols);
  o->ld = o->transposed ? col_stride : row_stride;
  return !o->transposed || (row_stride == 1 && col_stride >= rows) || rows * cols == 0;
}

Operand operand(const View& v, bool left, DType dtype, std::vector<Contiguous>& kept) {
  Dims shape = v.shape(), strides = *v.strides;
  if (shape.size() == 1) {
    shape.insert(left ? 0 : 1, 1);
    strides.insert(left ? 0 : 1, left ? shape[1] * strides[0] : 1);
  }
  const int r = shape.size() - 2;
  Operand o;
  o.data = v.as<char>();
  const bool usable = v.dtype() == dtype && read_layout(shape[r], shape[r + 1], strides[r], strides[r + 1], &o);
  if (!usable) {
    kept.emplace_back(v, dtype);
    o.data = static_cast<const char*>(kept.back().data());
    strides = contiguous_strides(shape);
    read_layout(shape[r], shape[r + 1], strides[r], strides[r + 1], &o);
  }
  if (o.rows * o.cols == 0) o.transposed = false;
  if (o.ld < 1) o.ld = 1;
  for (int i = 0; i < r; ++i) {
    o.batch.push_back(shape[i]);
    o.batch_strides.push_back(strides[i]);
  }
  return o;
}

// Merges adjacent batch dims that both operands traverse with one stride.
void join_dims(Dims& batch, Dims& a, Dims& b) {
  for (int i = batch.size() - 2; i >= 0; --i) {
    if (a[i] != a[i + 1] * batch[i + 1] || b[i] != b[i + 1] * batch[i + 1]) continue;
    batch[i + 1] *= batch[i];
    batch.erase(i);
    a.erase(i);
    b.erase(i);
  }
}

struct Product {
  int64_t m, n, k;
  const Operand &a, &b;
};

template <class T>
void multiply_integers(int64_t count, cpu::BatchStrides s, const Product& p, const T* a, const T* b, T* c) {
  const int64_t a_row = p.a.transposed ? 1 : p.a.ld, a_step = p.a.transposed ? p.a.ld : 1;
  const int64_t b_row = p.b.transposed ? 1 : p.b.ld, b_step = p.b.transposed ? p.b.ld : 1;
  constexpr int64_t kFewColumns = 4, kSmall = 512;  // where vectors of columns gain nothing
  constexpr int64_t kStep = 256;                    // rows that a thread takes at least, of those next to each other
  if (p.n == 1 && a_row == 1 && p.m * p.k >= kSmall) {  // the transposed product has vectors of columns
    for (int64_t q = 0; q < count; ++q, a += s.a, b += s.b, c += s.c)
      parallel_for((p.m + kStep - 1) / kStep, 10'000 / (kStep * p.k + 1) + 1, [&](int64_t begin, int64_t end) {
        in_polled_blocks(std::min(end * kStep, p.m) - begin * kStep, kStep, [&](int64_t from, int64_t to) {
          const int64_t first = begin * kStep + from;
          cpu::multiply_integers(sizeof(T), to - from, p.k, b, b_row, a + first, a_step, c + first);
        });
      });
    return;
  }
  Poller poll;
  if (p.n < kFewColumns || times(times(p.m, p.n), p.k) < kSmall) {
    for (int64_t q = 0; q < count; ++q, a += s.a, b += s.b, c += s.c, poll(p.m))
      parallel_for(p.m, 10'000 / (p.n * p.k + 1) + 1, [&](int64_t begin, int64_t end) {
        Poller each;
        for (int64_t i = begin; i < end; ++i)
          for (int64_t j = 0; j < p.n; ++j, each(p.k)) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < p.k; ++l)
              sum += uint64_t(a[i * a_row + l * a_step]) * uint64_t(b[l * b_row + j * b_step]);
            c[i * p.n + j] = static_cast<T>(sum);
          }
      });
    return;
  }
  const bool copies = p.b.transposed || p.b.ld != p.n;
  cpu::WorkVector<T> copy(copies ? size_t(p.k * p.n) : 0);
  for (int64_t q = 0; q < count; ++q, a += s.a, b += s.b, c += s.c) {
    for (int64_t l = 0, to = 0; copies && l < p.k; ++l, poll(p.n))
      for (int64_t j = 0; j < p.n; ++j) copy[size_t(to++)] = b[l * b_row + j * b_step];
    const T* right = copies ? copy.data() : b;
    parallel_for(p.m, 100'000 / std::max<int64_t>(p.n * p.k, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        poll_kernel();
        cpu::multiply_integers(sizeof(T), p.n, p.k, a + i * a_row, a_step, right, p.n, c + i * p.n);
      }
    });
  }
}

template <class T>
void multiply(int64_t count, cpu::BatchStrides s, const Product& p, const T* a, const T* b, T* c) {
  if constexpr (std::is_floating_point_v<T>) {
    cpu::gemm_batched(count, s, p.a.transposed, p.b.transposed, p.m, p.n, p.k, a, p.a.ld, b, p.b.ld, c, p.n);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    cpu::gemm_half_batched(count, s, p.a.transposed, p.b.transposed, p.m, p.n, p.k, a, p.a.ld, b, p.b.ld, c, p.n);
  } else {
    multiply_integers(count, s, p, a, b, c);
  }
}

// Multiplies all matrices of a batch: one call per run of the innermost batch dim.
template <class T>
void multiply_batches(const Product& p, Dims batch, Dims sa, Dims sb, const T* a, const T* b, T* c) {
  join_dims(batch, sa, sb);
  if (batch.empty()) return multiply<T>(1, {0, 0, 0}, p, a, b, c);
  const int last = batch.size() - 1;
  const cpu::BatchStrides inner{sa[last], sb[last], p.m * p.n};
  int64_t outer = 1;
  for (int i = 0; i < last; ++i) outer *= batch[i];
  Dims index(last, 0);
  for (int64_t q = 0; q < outer; ++q, c += batch[last] * p.m * p.n) {
    int64_t at_a = 0, at_b = 0;
    for (int i = 0; i < last; ++i) at_a += index[i] * sa[i], at_b += index[i] * sb[i];
    multiply<T>(batch[last], inner, p, a + at_a, b + at_b, c);
    for (int i = last - 1; i >= 0 && ++index[i] == batch[i]; --i) index[i] = 0;
  }
}

void matmul(const KernelArgs& args) {
  const View& out = args.out[0];
  if (out.numel() == 0) return;
  std::vector<Contiguous> kept;
  kept.reserve(2);
  const Operand a = operand(args.in[0], true, out.dtype(), kept);
  const Operand b = operand(args.in[1], false, out.dtype(), kept);
  const Product p{a.rows, b.cols, a.cols, a, b};
  Dims batch;
  broadcast(a.batch, b.batch, &batch);
  const Dims sa = broadcast_strides(a.batch, a.batch_strides, batch);
  const Dims sb = broadcast_strides(b.batch, b.batch_strides, batch);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      multiply_batches<T>(p, batch, sa, sb, reinterpret_cast<const T*>(a.data), reinterpret_cast<const T*>(b.data),
                          out.as<T>());
  });
}

template <class H>
void linear_half(int64_t m, int64_t n, int64_t k, const H* x, const H* w, const H* bias, bool relu, H* y) {
  const cpu::Scratch<float> wide(bias ? n : 0);
  if (bias) cpu::to_float(bias, wide, n);
  const int64_t ld = std::max<int64_t>(k, 1);
  cpu::gemm_half(false, true, m, n, k, x, ld, w, ld, y, n, {wide.get(), relu});
}

void product_with_bias(const KernelArgs& args, bool relu) {
  const View& out = args.out[0];
  const DType type = out.dtype();
  const Contiguous x(args.in[0], type), w(args.in[1], type);
  std::optional<Contiguous> bias;
  if (args.in[2]) bias.emplace(args.in[2], type);
  const int64_t n = args.in[1].size(0), k = args.in[1].size(1);
  const int64_t m = n == 0 ? 0 : out.numel() / n;
  const void* b = bias ? bias->data() : nullptr;
  visit_dtype(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *px = static_cast<const T*>(x.data()), *pw = static_cast<const T*>(w.data()),
            *pb = static_cast<const T*>(b);
    if constexpr (std::is_floating_point_v<T>)
      cpu::linear(m, n, k, px, pw, pb, relu, out.as<T>());
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      linear_half(m, n, k, px, pw, pb, relu, out.as<T>());
  });
}

void linear(const KernelArgs& args) { product_with_bias(args, false); }

void linear_act(const KernelArgs& args) {
  const bool relu = cpu::asks_relu(args);
  product_with_bias(args, relu);
  if (!relu) cpu::Activation{args}(args.out[0]);
}

bool is_plain_float(const View& v) { return v.dtype() == DType::kFloat32 && is_contiguous(v.shape(), *v.strides); }

std::unique_ptr<const PreparedKernel> prepare_linear(const KernelArgs& args, uint32_t lasting) {
  for (const View& v : args.in)
    if (v && !is_plain_float(v)) return nullptr;
  const int64_t n = args.in[1].size(0), k = args.in[1].size(1);
  if (n * k == 0) return nullptr;
  return cpu::prepare_linear(args.out[0].numel() / n, n, k, lasting & 2, cpu::Finish(args));
}

// A product of two matrices, of which the right one lasts.
std::unique_ptr<const PreparedKernel> prepare_matmul(const KernelArgs& args, uint32_t lasting) {
  const View &a = args.in[0], &b = args.in[1];
  if (!(lasting & 2) || a.rank() != 2 || b.rank() != 2 || !is_plain_float(a) || !is_plain_float(b)) return nullptr;
  return cpu::prepare_product(a.size(0), b.size(1), b.size(0), cpu::Finish(args));
}

}  // namespace

void add_linalg_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"matmul", matmul, kStridedInputs, prepare_matmul},
      {"mm", matmul, kStridedInputs, prepare_matmul},
      {"bmm", matmul, kStridedInputs},
      {"mv", matmul, kStridedInputs},
      {"linear", linear, kStridedInputs | kHasWeight, prepare_linear},
      {"linear_act", linear_act, kStridedInputs | kHasWeight, prepare_linear},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
