#include <algorithm>

#include "tensor/arguments.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/reduce/extremes_simd.h"
#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::Finish;
using cpu::Lines;
using cpu::ReduceOp;
using cpu::Reduction;

template <ReduceOp op, Finish finish = Finish::kPlain>
void plain_kernel(const KernelArgs& a) {
  cpu::reduce(a.in[0], dim_mask(a), a.out[0], {op, finish});
}

void mean_kernel(const KernelArgs& a) {
  const uint32_t mask = dim_mask(a);
  const double n = double(masked_numel(a.in[0], mask));
  cpu::reduce(a.in[0], mask, a.out[0], {ReduceOp::kSum, Finish::kScale, 1.0 / n});
}

void all_kernel(const KernelArgs& a) {
  const uint32_t mask = dim_mask(a);
  cpu::reduce(a.in[0], mask, a.out[0], {ReduceOp::kCount, Finish::kAll, double(masked_numel(a.in[0], mask))});
}

void sum_to_kernel(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  // With one element per output, copies the elements unchanged: 0 + -0 would be 0.
  if (in.dtype() == out.dtype() && in.numel() == out.numel()) return cpu::copy_strided(in, out.data);
  const int lead = in.rank() - out.rank();
  uint32_t mask = 0;
  for (int d = 0; d < in.rank(); ++d)
    if (d < lead || (out.size(d - lead) == 1 && in.size(d) != 1)) mask |= 1u << d;
  cpu::reduce(in, mask, out, {ReduceOp::kSum});
}

// Whether x replaces best. NaN replaces everything and is never replaced.
template <bool kMax, class C>
bool beats(C x, C best) {
  if (best != best) return false;
  return x != x || (kMax ? x > best : x < best);
}

template <class T>
constexpr bool kHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
auto comparable(T v) {
  if constexpr (kHalf<T>)
    return float(v);
  else
    return v;
}

template <class T>
constexpr bool kVectorized = std::is_same_v<T, float> || std::is_same_v<T, double>;

template <bool kMax, class T>
int64_t extreme_of_block(const T* x, int64_t n) {
  if constexpr (kVectorized<T>) return cpu::extreme_loops(T()).row[kMax](x, n);
  int64_t at = 0;
  if constexpr (kHalf<T>) {
    constexpr int64_t kPart = 1024;
    float part[kPart], best = 0;
    for (int64_t begin = 0; begin < n; begin += kPart) {
      const int64_t m = std::min(kPart, n - begin);
      cpu::to_float(x + begin, part, m);
      const int64_t i = cpu::extreme_loops(float()).row[kMax](part, m);
      if (begin == 0 || beats<kMax>(part[i], best)) best = part[i], at = begin + i;
    }
  } else {
    for (int64_t i = 1; i < n; ++i)
      if (beats<kMax>(x[i], x[at])) at = i;
  }
  return at;
}

// Computes the extremes of `count` rows of n elements, each from those of its parts.
template <bool kMax, class T>
void extremes_of_long_rows(const T* x, int64_t n, int64_t count, int64_t* at) {
  constexpr int64_t kPart = 64 << 10, kPartsPerTask = 4;
  const int64_t parts = (n + kPart - 1) / kPart;
  cpu::WorkVector<int64_t> found(size_t(count * parts));
  parallel_for(count * parts, kPartsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts, first = i % parts * kPart;
      found[size_t(i)] = first + extreme_of_block<kMax>(x + row * n + first, std::min(kPart, n - first));
    }
  });
  for (int64_t r = 0; r < count; ++r) {
    const T* row = x + r * n;
    int64_t best = found[size_t(r * parts)];
    for (int64_t p = 1; p < parts; ++p)
      if (const int64_t i = found[size_t(r * parts + p)]; beats<kMax>(comparable(row[i]), comparable(row[best])))
        best = i;
    at[r] = best;
  }
}

// Computes the extremes of a tile of columns, row by row.
template <bool kMax, class T>
void extremes_of_columns(const T* x, int64_t n, int64_t stride, int64_t width, int64_t* at) {
  constexpr int64_t kTile = cpu::kExtremesTile;
  using C = decltype(comparable(T()));
  C best[kTile];
  Poller poll;
  for (int64_t first = 0; first < width; first += kTile, poll(n * kTile)) {
    const int64_t m = std::min(kTile, width - first);
    if constexpr (kVectorized<T>) {
      cpu::extreme_loops(T()).columns[kMax](x + first, n, stride, m, best, at + first);
      continue;
    }
    for (int64_t j = 0; j < m; ++j) best[j] = comparable(x[first + j]), at[first + j] = 0;
    [[maybe_unused]] C row[kTile];
    for (int64_t i = 1; i < n; ++i) {
      const auto* from = x + i * stride + first;
      if constexpr (kHalf<T>) cpu::to_float(from, row, m);
      for (int64_t j = 0; j < m; ++j) {
        const C v = kHalf<T> ? row[j] : C(from[j]);
        const bool better = beats<kMax>(v, best[j]);
        best[j] = better ? v : best[j];
        at[first + j] = better ? i : at[first + j];
      }
    }
  }
}

// Computes the extremes of `count` rows of n elements. Short rows of floats are turned to columns, some at a time.
template <bool kMax, class T>
void extremes_of_rows(const T* x, int64_t n, int64_t count, int64_t* at) {
  constexpr int64_t kShort = 12, kRows = 64;
  if ((!kVectorized<T> && !kHalf<T>) || n > kShort) {
    for (int64_t r = 0; r < count; ++r) at[r] = extreme_of_block<kMax>(x + r * n, n);
    return;
  }
  T columns[kShort * kRows];
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t m = std::min(kRows, count - first);
    for (int64_t c = 0; c < n; ++c)
      for (int64_t r = 0; r < m; ++r) columns[c * kRows + r] = x[(first + r) * n + c];
    extremes_of_columns<kMax>(columns, n, kRows, m, at + first);
  }
}

// Writes positions to `indices`, and the elements there to `values` unless it is null. Positions count from `base`.
template <bool kMax, class T>
void extremes(const T* x, const Lines& lines, int64_t base, T* values, int64_t* indices) {
  const auto [outer, n, inner] = lines;
  if (outer * n * inner == 0) return;
  const auto finish = [&, n = n, inner = inner](int64_t o, int64_t first, int64_t last) {
    int64_t* at = indices + o * inner;
    for (int64_t j = first; j < last; ++j) {
      if (values) values[o * inner + j] = x[(o * n + at[j]) * inner + j];
      at[j] += base;
    }
  };
  constexpr int64_t kLongRow = 64 << 10, kStrip = 64;  // columns
  if (inner == 1 && n > kLongRow) {
    extremes_of_long_rows<kMax>(x, n, outer, indices);
    for (int64_t o = 0; o < outer; ++o) finish(o, 0, 1);
  } else if (inner == 1) {
    parallel_for(outer, cpu::shared_grain(n * int64_t(sizeof(T))), [&, n = n](int64_t begin, int64_t end) {
      extremes_of_rows<kMax>(x + begin * n, n, end - begin, indices + begin);
      for (int64_t o = begin; o < end; ++o) finish(o, 0, 1);
    });
  } else {
    const int64_t strips = (inner + kStrip - 1) / kStrip;
    parallel_for(outer * strips, cpu::shared_grain(n * std::min(inner, kStrip) * int64_t(sizeof(T))),
                 [&, n = n, inner = inner](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end;) {
                     const int64_t o = i / strips, strip = i % strips, count = std::min(end - i, strips - strip);
                     const int64_t first = strip * kStrip, last = std::min(first + count * kStrip, inner);
                     extremes_of_columns<kMax>(x + o * n * inner + first, n, inner, last - first,
                                               indices + o * inner + first);
                     finish(o, first, last);
                     i += count;
                   }
                 });
  }
}

// The place in an array of shape `in` of element i of its part of shape `part`, which begins where the array begins.
int64_t place_in(const Dims& in, const Dims& part, int64_t i) {
  int64_t place = 0, stride = 1;
  for (int d = in.size() - 1; d >= 0; --d) {
    place += i % part[d] * stride;
    i /= part[d];
    stride *= in[d];
  }
  return place;
}

// Of elements that a dim repeats (stride 0) only the first ones are looked at.
template <bool kMax>
void extremes_kernel(const KernelArgs& a, const View* values, const View& indices) {
  const View& in = a.in[0];
  const bool whole = !a.has_attr("dim");
  const int dim = whole || in.rank() == 0 ? 0 : a.dim("dim", in.rank());
  Type type = *in.type;
  for (int d = 0; d < in.rank(); ++d)
    if ((whole || d == dim) && (*in.strides)[d] == 0 && in.size(d) > 1) type.shape[d] = 1;
  const View part{&type, in.strides, in.data};
  cpu::WorkVector<char> copy;
  const void* data = in.data;
  if (!is_contiguous(type.shape, *in.strides)) {
    copy.resize(size_t(part.numel()) * size_t(size_of(in.dtype())));
    cpu::copy_strided(part, copy.data());
    data = copy.data();
  }
  const Lines lines = whole ? Lines(Dims{part.numel()}, 0) : Lines(type.shape, dim);
  const int64_t base = a.attr<int64_t>("index_base");
  visit_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    extremes<kMax, T>(static_cast<const T*>(data), lines, base, values ? values->as<T>() : nullptr,
                      indices.as<int64_t>());
  });
  int64_t* first = indices.as<int64_t>();
  if (whole && part.numel() < in.numel()) *first = base + place_in(in.shape(), type.shape, *first - base);
}

template <bool kMax>
void arg_kernel(const KernelArgs& a) {
  extremes_kernel<kMax>(a, nullptr, a.out[0]);
}

template <bool kMax>
void extreme_kernel(const KernelArgs& a) {
  if (a.out.size() == 2) return extremes_kernel<kMax>(a, &a.out[0], a.out[1]);
  cpu::reduce(a.in[0], dim_mask(a), a.out[0], {kMax ? ReduceOp::kMax : ReduceOp::kMin});
}

}  // namespace

void add_reduce_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"sum", plain_kernel<ReduceOp::kSum>, kStridedInputs},
      {"mean", mean_kernel, kStridedInputs},
      {"sum_squares", plain_kernel<ReduceOp::kSumSquares>, kStridedInputs},
      {"nansum", plain_kernel<ReduceOp::kSumNumbers>, kStridedInputs},
      {"prod", plain_kernel<ReduceOp::kProd>, kStridedInputs},
      {"amax", plain_kernel<ReduceOp::kMax>, kStridedInputs},
      {"amin", plain_kernel<ReduceOp::kMin>, kStridedInputs},
      {"count_nonzero", plain_kernel<ReduceOp::kCount>, kStridedInputs},
      {"any", plain_kernel<ReduceOp::kCount, Finish::kAny>, kStridedInputs},
      {"all", all_kernel, kStridedInputs},
      {"sum_to", sum_to_kernel, kStridedInputs},
      {"max", extreme_kernel<true>, kStridedInputs},
      {"min", extreme_kernel<false>, kStridedInputs},
      {"argmax", arg_kernel<true>, kStridedInputs},
      {"argmin", arg_kernel<false>, kStridedInputs},
  };
  r.add_kernels(0, kRows);
  cpu::add_scan_kernels(r);
  cpu::add_softmax_kernels(r);
  cpu::add_moment_kernels(r);
}

}  // namespace pg
