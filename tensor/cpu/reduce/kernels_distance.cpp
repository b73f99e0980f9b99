// Distances of all pairs of rows, without an array of all differences.
#include <algorithm>
#include <cmath>

#include "tensor/cpu/half.h"
#include "tensor/cpu/reduce/distance_simd.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

constexpr int64_t kGrain = 8 << 10;  // differences that take about 10 µs
template <class T>
T sign(T d) {
  return T(d > 0) - T(d < 0);
}

// The orders of the norm. `add` adds the derivative of the distance of rows a and b by a, times g, to dx.
template <class T>
struct Order0 {
  void add(const T*, const T*, int64_t, T, T, T*) const {}
};

template <class T>
struct Order1 {
  void add(const T* a, const T* b, int64_t n, T, T g, T* dx) const {
    for (int64_t k = 0; k < n; ++k) dx[k] += g * sign(a[k] - b[k]);
  }
};

template <class T>
struct OrderInfinite {
  void add(const T* a, const T* b, int64_t n, T distance, T g, T* dx) const {
    for (int64_t k = 0; k < n; ++k) {
      const T d = a[k] - b[k];
      if (std::fabs(d) == distance) dx[k] += g * sign(d);
    }
  }
};

template <class T>
struct AnyOrder {
  T p;
  void add(const T* a, const T* b, int64_t n, T distance, T g, T* dx) const {
    if (distance == 0) return;
    for (int64_t k = 0; k < n; ++k) {
      const T d = a[k] - b[k];
      if (d != 0) dx[k] += g * sign(d) * std::pow(std::fabs(d) / distance, p - 1);
    }
  }
};

template <class T, class F>
void with_order(double p, F&& f) {
  if (p == 0) return f(Order0<T>());
  if (p == 1) return f(Order1<T>());
  if (std::isinf(p)) return f(OrderInfinite<T>());
  f(AnyOrder<T>{T(p)});
}

template <class F>
void visit_real(DType t, F&& f) {
  return t == DType::kFloat64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

// Calls f(row, of_batch) for the rows of all batches, on several threads. `cost`: of one row.
template <class F>
void each_row(const Dims& x, int64_t cost, F&& f) {
  const int64_t rows = x[1];
  parallel_for(times(x[0], rows), kGrain / (cost + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, i / rows);
  });
}

// The rows of all batches in packed blocks, the last of a batch with rows of zeros at its end.
template <class T>
struct PackedRows {
  int64_t rows, width, blocks;
  WorkVector<T> data;

  explicit PackedRows(const View& y)
      : rows(y.size(1)),
        width(y.size(2)),
        blocks((rows + kDistanceRows<T> - 1) / kDistanceRows<T>),
        data(size_t(times(times(times(y.size(0), blocks), width), kDistanceRows<T>)), T(0)) {
    parallel_for(y.size(0) * rows, kGrain / (width + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* to = block(i / rows, i % rows / kDistanceRows<T>) + i % rows % kDistanceRows<T>;
        for (int64_t k = 0; k < width; ++k) to[k * kDistanceRows<T>] = y.as<T>()[i * width + k];
      }
    });
  }
  T* block(int64_t batch, int64_t b) { return data.data() + (batch * blocks + b) * width * kDistanceRows<T>; }
};

// Distances of order 1, 2 or infinity.
template <class T>
void packed_distances(const KernelArgs& a, double p) {
  const View &x = a.in[0], &out = a.out[0];
  const DistanceLoops<T> loops = distance_loops(T());
  const auto loop = p == 1 ? loops.absolute_sum : p == 2 ? loops.square_sum : loops.largest;
  PackedRows<T> y(a.in[1]);
  each_row(x.shape(), times(y.rows, y.width), [&](int64_t i, int64_t batch) {
    T part[kDistanceRows<T>];
    Poller poll;
    for (int64_t b = 0; b < y.blocks; ++b, poll(y.width + 1)) {
      const int64_t first = b * kDistanceRows<T>, count = std::min(kDistanceRows<T>, y.rows - first);
      loop(x.as<T>() + i * y.width, y.block(batch, b), y.width, count, part);
      T* to = out.as<T>() + i * y.rows + first;
      for (int64_t j = 0; j < count; ++j) to[j] = p == 2 ? std::sqrt(part[j]) : part[j];
    }
  });
}

// Distances of any order, one pair at a time.
template <class T>
void plain_distances(const KernelArgs& a, double p) {
  const View &x = a.in[0], &y = a.in[1], &out = a.out[0];
  const int64_t width = x.size(2), others = y.size(1);
  constexpr int64_t kWork = 16;  // a power costs more than a simple loop's element
  const auto term = [p](double d) { return p == 0 ? double(d != 0) : std::pow(d, p); };
  each_row(x.shape(), times(others, width), [&](int64_t i, int64_t batch) {
    const T *row = x.as<T>() + i * width, *other = y.as<T>() + batch * others * width;
    Poller poll;
    for (int64_t j = 0; j < others; ++j, other += width) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k, poll(kWork)) sum += term(std::fabs(double(row[k] - other[k])));
      out.as<T>()[i * others + j] = T(p == 0 ? sum : std::pow(sum, 1 / p));
    }
  });
}

void distances(const KernelArgs& a) {
  const double p = a.attr<double>("p");
  visit_real(a.in[0].dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    p == 1 || p == 2 || std::isinf(p) ? packed_distances<T>(a, p) : plain_distances<T>(a, p);
  });
}

// The derivative of distances of order 2 by the rows of x.
template <class T>
void pull_rows(const KernelArgs& a) {
  const View &dy = a.in[0], &x = a.in[1], &y = a.in[2], &distance = a.in[3], &out = a.out[0];
  const int64_t width = x.size(2), others = y.size(1);
  const DistanceLoops<T> loops = distance_loops(T());
  each_row(x.shape(), times(others, width), [&](int64_t i, int64_t batch) {
    constexpr int64_t kBlock = 64;
    T share[kBlock], *dx = out.as<T>() + i * width;
    std::fill_n(dx, width, T(0));
    Poller poll;
    for (int64_t first = 0; first < others; first += kBlock) {
      const int64_t count = std::min(kBlock, others - first), at = i * others + first;
      for (int64_t j = 0; j < count; ++j) {
        const T length = distance.as<T>()[at + j];
        share[j] = length == 0 ? T(0) : dy.as<T>()[at + j] / length;
      }
      loops.pull(x.as<T>() + i * width, y.as<T>() + (batch * others + first) * width, width, count, share, dx);
      poll(count * (width + 1));
    }
  });
}

void distances_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &x = a.in[1], &y = a.in[2], &distance = a.in[3], &out = a.out[0];
  const int64_t width = x.size(2), others = y.size(1);
  visit_real(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.attr<double>("p") == 2) return pull_rows<T>(a);
    with_order<T>(a.attr<double>("p"), [&](auto order) {
      each_row(x.shape(), times(others, width), [&](int64_t i, int64_t batch) {
        const T *row = x.as<T>() + i * width, *other = y.as<T>() + batch * others * width;
        T* dx = out.as<T>() + i * width;
        std::fill_n(dx, width, T(0));
        Poller poll;
        for (int64_t j = 0; j < others; ++j, poll(width + 1))
          order.add(row, other + j * width, width, distance.as<T>()[i * others + j], dy.as<T>()[i * others + j], dx);
      });
    });
  });
}

void distances_kernel(const KernelArgs& a) { run_widened(a, distances); }
void distances_backward_kernel(const KernelArgs& a) { run_widened(a, distances_backward); }

}  // namespace

void add_distance_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"row_distances", distances_kernel},
      {"row_distances_backward", distances_backward_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
