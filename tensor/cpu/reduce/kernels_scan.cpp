// Running reductions. Along the last dim a scan is a chain of dependent steps; along other dims it works on whole rows.
#include <algorithm>

#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/wrap.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kTile = 256;       // columns per tile
constexpr int64_t kBlock = 1 << 20;  // elements between two polls

template <class T>
using Running =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> || std::is_floating_point_v<T>, double,
                       int64_t>;

template <class T>
auto number(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return float(v);
  else
    return v;
}
template <class Out, class A>
Out rounded(A v) {
  if constexpr (std::is_same_v<Out, Half> || std::is_same_v<Out, BFloat16>)
    return Out(float(v));
  else
    return static_cast<Out>(v);
}

template <bool kProduct, class A>
A advance(A total, A v) {
  return kProduct ? wrapped_product(total, v) : wrapped_sum(total, v);
}

// Calls f(offset, width) for every tile of columns; offset is that of the first element.
template <class F>
void over_columns(const Lines& lines, const F& f) {
  const int64_t tiles = (lines.inner + kTile - 1) / kTile, width = std::min(kTile, lines.inner);
  parallel_for(lines.outer * tiles, (32 << 10) / std::max<int64_t>(lines.n * width, 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i % tiles * kTile;
                   f(i / tiles * lines.n * lines.inner + first, std::min(kTile, lines.inner - first));
                 }
               });
}

// Scans `count` elements, starting with `total`; `step` is 1 or -1. Returns the last total.
// Not inlined: inside a lambda GCC treats the loop as cold and keeps a false dependency between its conversions.
template <bool kProduct, class In, class Out, class A>
[[gnu::noinline]] A running_block(const In* x, Out* y, int64_t count, int64_t step, A total) {
  for (int64_t k = 0; k < count; ++k, x += step, y += step) {
    total = advance<kProduct>(total, A(number(*x)));
    *y = rounded<Out>(total);
  }
  return total;
}

template <bool kProduct, class In, class Out>
void running_line(const In* x, Out* y, int64_t n, bool reverse) {
  Running<In> total = kProduct ? 1 : 0;
  in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
    const int64_t first = reverse ? n - 1 - begin : begin;
    total = running_block<kProduct>(x + first, y + first, end - begin, reverse ? -1 : 1, total);
  });
}

// Calls f(k) for rows 0 to lines.n - 1 of a tile.
template <class F>
void over_rows(const Lines& lines, int64_t width, const F& f) {
  in_polled_blocks(lines.n, kBlock / width, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k);
  });
}

template <bool kProduct, class In, class Out>
void running(const In* x, Out* y, const Lines& lines, bool reverse) {
  using A = Running<In>;
  if (lines.inner == 1)
    return over_columns(
        lines, [&](int64_t offset, int64_t) { running_line<kProduct>(x + offset, y + offset, lines.n, reverse); });
  over_columns(lines, [&](int64_t offset, int64_t width) {
    A total[kTile];
    std::fill(total, total + width, A(kProduct ? 1 : 0));
    over_rows(lines, width, [&](int64_t k) {
      const int64_t row = offset + (reverse ? lines.n - 1 - k : k) * lines.inner;
      for (int64_t j = 0; j < width; ++j) {
        total[j] = advance<kProduct>(total[j], A(number(x[row + j])));
        y[row + j] = rounded<Out>(total[j]);
      }
    });
  });
}

template <bool kProduct>
void running_kernel(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  visit_dtype(in.dtype(), [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Out = std::conditional_t<std::is_integral_v<In>, int64_t, In>;
    running<kProduct>(in.as<const In>(), a.out[0].as<Out>(), lines, a.attr<bool>("reverse"));
  });
}

template <bool kMax, class T>
void running_extreme(const T* x, T* values, int64_t* indices, const Lines& lines, int64_t base) {
  over_columns(lines, [&](int64_t offset, int64_t width) {
    decltype(number(T())) best[kTile];
    int64_t at[kTile];
    over_rows(lines, width, [&](int64_t k) {
      for (int64_t j = 0; j < width; ++j) {
        const int64_t i = offset + k * lines.inner + j;
        const auto v = number(x[i]);
        if (k == 0 || v != v || (best[j] == best[j] && (kMax ? v >= best[j] : v <= best[j])))
          best[j] = v, at[j] = k + base;
        values[i] = rounded<T>(best[j]);
        indices[i] = at[j];
      }
    });
  });
}

template <bool kMax>
void running_extreme_kernel(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  visit_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    running_extreme<kMax>(in.as<const T>(), a.out[0].as<T>(), a.out[1].as<int64_t>(), lines,
                          a.attr<int64_t>("index_base"));
  });
}

template <class T>
void scan_affine(const T* a, const T* b, T* y, const Lines& lines, bool reverse, int64_t lag) {
  over_columns(lines, [&](int64_t offset, int64_t width) {
    double carry[kTile];
    std::fill(carry, carry + width, 0.0);
    over_rows(lines, width, [&](int64_t k) {
      const int64_t row = offset + (reverse ? lines.n - 1 - k : k) * lines.inner;
      const int64_t factor = row + (reverse ? lag : -lag) * lines.inner;
      for (int64_t j = 0; j < width; ++j) {
        carry[j] = double(number(b[row + j])) + (k == 0 ? 0.0 : double(number(a[factor + j])) * carry[j]);
        y[row + j] = rounded<T>(carry[j]);
      }
    });
  });
}

void scan_affine_kernel(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  const auto scan = [&](auto* y) {
    using T = std::remove_pointer_t<decltype(y)>;
    scan_affine(in.as<const T>(), a.in[1].as<const T>(), y, lines, a.attr<bool>("reverse"), a.attr<int64_t>("lag"));
  };
  switch (in.dtype()) {
    case DType::kFloat16:
      return scan(a.out[0].as<Half>());
    case DType::kBFloat16:
      return scan(a.out[0].as<BFloat16>());
    case DType::kFloat32:
      return scan(a.out[0].as<float>());
    default:
      return scan(a.out[0].as<double>());
  }
}

}  // namespace

void add_scan_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"cumsum", running_kernel<false>},        {"cumprod", running_kernel<true>},
      {"cummax", running_extreme_kernel<true>}, {"cummin", running_extreme_kernel<false>},
      {"scan_affine", scan_affine_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg::cpu
