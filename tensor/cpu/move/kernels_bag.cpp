// Kernels of embedding_bag, and of index values that a composition reads.
#include <algorithm>
#include <cmath>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/move/sum_rows_simd.h"
#include "tensor/cpu/register.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

// Returns the offset counted from 0, limited to -2^62 and 2^62.
int64_t offset_at(const View& offsets, int64_t i, int64_t base) {
  constexpr double kLimit = double(int64_t(1) << 62);
  const double v = load_number(offsets.dtype(), offsets.as<char>() + i * size_of(offsets.dtype()));
  return int64_t(std::clamp(v - double(base), -kLimit, kLimit));
}

// Bag b covers the positions from offset b to the next one, or to the end.
void bag_numbers_kernel(const KernelArgs& a) {
  const View &offsets = a.in[0], &out = a.out[0];
  const int64_t n = offsets.numel(), length = out.numel(), base = a.attr<int64_t>("index_base");
  const int64_t bags = n - (a.attr<bool>("include_last_offset") ? 1 : 0);
  int64_t before = 0;
  const auto refuse = [&](const std::string& expected, int64_t i, int64_t v) {
    bad_argument("embedding_bag", "offsets", expected, fmt::format("{} at position {}", v + base, i + 1));
  };
  Poller poll;
  for (int64_t i = 0; i < n; ++i, poll()) {
    const int64_t v = offset_at(offsets, i, base);
    if (i == 0 && v != 0) refuse(fmt::format("{} first", base), i, v);
    if (v < before || v > length) refuse(fmt::format("offsets in order, up to {}", length + base), i, v);
    before = v;
  }
  if (length > 0 && bags <= 0) bad_argument("embedding_bag", "offsets", "a bag for the indices", "none");
  if (bags < n && before != length) refuse(fmt::format("{} last", length + base), n - 1, before);
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t first = offset_at(offsets, b, base), end = b + 1 < n ? offset_at(offsets, b + 1, base) : length;
    std::fill(out.as<int64_t>() + first, out.as<int64_t>() + end, b);
    poll(end - first + 1);
  }
}

// The first of equal elements counts; NaN is larger than any number.
template <class T>
void bag_argmax_typed(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const int64_t rows = x.size(0), columns = x.size(1), bags = out.size(0);
  const T* data = x.as<T>();
  int64_t* best = out.as<int64_t>();
  std::fill_n(best, out.numel(), int64_t(-1));
  Poller poll;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t bag = a.in[1].as<int64_t>()[r];
    if (bag < 0 || bag >= bags) continue;
    for (int64_t j = 0; j < columns; ++j) {
      poll();
      int64_t& at = best[bag * columns + j];
      const T v = data[r * columns + j];
      if (at < 0) {
        at = r;
        continue;
      }
      const T top = data[at * columns + j];
      if (v > top || (std::isnan(v) && !std::isnan(top))) at = r;
    }
  }
}

void bag_argmax_kernel(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  a.in[0].dtype() == DType::kFloat64 ? bag_argmax_typed<double>(a) : bag_argmax_typed<float>(a);
}

void read_positions_kernel(const KernelArgs& a) {
  const View &index = a.in[0], &out = a.out[0];
  const int64_t base = a.attr<int64_t>("index_base"), n = out.numel();
  cpu::check_positions(a, 0, a.attr<int64_t>("size"), false, a.attr<std::string>("op").c_str(),
                       a.attr<std::string>("argument").c_str());
  visit_dtype(index.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      in_polled_blocks(n, 1 << 20, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out.as<int64_t>()[i] = int64_t(index.as<T>()[i]) - base;
      });
  });
}

}  // namespace

void add_bag_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"bag_numbers", bag_numbers_kernel},
      {"bag_argmax", bag_argmax_kernel},
      {"read_positions", read_positions_kernel},
      {"sum_rows", cpu::sum_rows},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
