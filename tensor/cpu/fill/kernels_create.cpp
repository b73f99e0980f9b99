// Kernels that fill, copy and convert.
#include <algorithm>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/device_table.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::WorkVector;

constexpr int64_t kGrain = 100'000;  // elements that take about 10 µs to write

void fill(const View& out, double number) { cpu::fill_number(out.dtype(), out.data, out.numel(), number); }

void zeros(const KernelArgs& a) { fill(a.out[0], 0); }
void ones(const KernelArgs& a) { fill(a.out[0], 1); }
void full(const KernelArgs& a) { fill(a.out[0], a.attr<double>("value")); }
// Elements without a value still have to be valid for their dtype.
void leave(const KernelArgs& a) {
  if (a.out[0].dtype() == DType::kBool) fill(a.out[0], 0);
}

// out[i] = f(i).
template <class F>
void generate(const View& out, F f) {
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = out.as<T>();
    parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) store_number(out.dtype(), data + i, f(i));
    });
  });
}

void range(const KernelArgs& a) {
  const double start = a.attr<double>("start"), step = a.attr<double>("step");
  generate(a.out[0], [&](int64_t i) { return start + double(i) * step; });
}

// Computes from both ends, so that the middle is symmetric and the last element is exact.
void linspace(const KernelArgs& a) {
  const double start = a.attr<double>("start"), stop = a.attr<double>("stop");
  const int64_t n = a.out[0].numel();
  const double step = n > 1 ? (stop - start) / double(n - 1) : 0;
  generate(a.out[0],
           [&](int64_t i) { return i < (n + 1) / 2 ? start + double(i) * step : stop - double(n - 1 - i) * step; });
}

void eye(const KernelArgs& a) {
  const View& out = a.out[0];
  fill(out, 0);
  const int64_t size = size_of(out.dtype()), columns = out.size(1);
  for (int64_t i = 0; i < std::min(out.size(0), columns); ++i)
    store_number(out.dtype(), out.as<char>() + (i * columns + i) * size, 1);
}

// The positions of a triangle, row by row. Visits only rows that have elements.
template <bool kLower>
void triangle(const KernelArgs& a) {
  const int64_t rows = a.attr<int64_t>("row"), columns = a.attr<int64_t>("col"), offset = a.attr<int64_t>("offset");
  const int64_t base = a.attr<int64_t>("index_base"), n = a.out[0].size(1);
  int64_t *row = a.out[0].as<int64_t>(), *column = row + n;
  int64_t at = 0;
  Poller poll;
  for (int64_t i = kLower ? std::max<int64_t>(-offset, 0) : 0; i < rows && at < n; ++i) {
    const int64_t begin = kLower ? 0 : std::max<int64_t>(i + offset, 0);
    const int64_t end = kLower ? std::min(i + offset + 1, columns) : columns;
    for (int64_t j = begin; j < end; ++j, ++at, poll()) row[at] = i + base, column[at] = j + base;
  }
}

void clone(const KernelArgs& a) { cpu::copy_strided(a.in[0], a.out[0].data); }

void check_all(const KernelArgs& a) {
  const View& in = a.in[0];
  const int64_t n = in.numel();
  visit_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; ++i)
      if (double(in.as<T>()[i]) == 0) fail("assert", "{}", a.attr<std::string>("message"));
  });
  cpu::copy_bytes(a.out[0].data, in.data, n * size_of(in.dtype()));
}

// The input is contiguous and on the host. The output may be on a device.
void to(const KernelArgs& a) {
  const View& in = a.in[0];
  const View& out = a.out[0];
  const int64_t n = out.numel(), size = size_of(out.dtype());
  const Device device = out.type->device;
  WorkVector<char> staging(device.is_cpu() ? 0 : size_t(n * size));
  char* target = device.is_cpu() ? out.as<char>() : staging.data();
  cpu::convert(in.dtype(), in.data, out.dtype(), target, n);
  if (!device.is_cpu()) upload(device, out.data, target, staging.size());
}

}  // namespace

void add_create_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"zeros", zeros},
      {"ones", ones},
      {"full", full},
      {"empty", leave},
      {"zeros_like", zeros, kStridedInputs},
      {"ones_like", ones, kStridedInputs},
      {"full_like", full, kStridedInputs},
      {"empty_like", leave, kStridedInputs},
      {"range", range},
      {"linspace", linspace},
      {"eye", eye},
      {"tril_indices", triangle<true>},
      {"triu_indices", triangle<false>},
      {"clone", clone, kStridedInputs},
      {"to", to},
      {"assert", check_all},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
