#include "tensor/cpu/move/row_sums.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// Returns the indices of the positions, which are below `size`, with those of one position next to each other and in
// their order.
WorkVector<int64_t> grouped(std::span<const int64_t> positions, int64_t size) {
  WorkVector<int64_t> order(positions.size());
  const auto before = [&](int64_t a, int64_t b) { return positions[size_t(a)] < positions[size_t(b)]; };
  if (std::is_sorted(positions.begin(), positions.end())) {
    std::iota(order.begin(), order.end(), 0);
  } else if (size > 8 * int64_t(positions.size())) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), before);
  } else {  // by counting
    WorkVector<int64_t> next(size_t(size) + 1, 0);
    for (int64_t p : positions) ++next[size_t(p) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (size_t j = 0; j < positions.size(); ++j) order[size_t(next[size_t(positions[j])]++)] = int64_t(j);
  }
  return order;
}

template <class T>
void add_rows(const Lines& x, std::span<const int64_t> positions, const T* src, T* out, float alpha) {
  const WorkVector<int64_t> order = grouped(positions, x.n);
  const int64_t count = int64_t(order.size());
  constexpr int64_t kMost = 256;  // columns at a time
  // Columns [begin, end) of rows `o`.
  const auto add = [&](int64_t o, int64_t begin, int64_t end) {
    float sum[kMost], term[kMost];
    Poller poll;
    for (int64_t first = 0, last = 0; first < count; first = last) {
      const int64_t position = positions[size_t(order[size_t(first)])];
      while (last < count && positions[size_t(order[size_t(last)])] == position) ++last;
      for (int64_t k = begin; k < end; k += kMost) {
        const int64_t n = std::min(kMost, end - k);
        T* const to = out + (o * x.n + position) * x.inner + k;
        to_float(to, sum, n);
        for (int64_t j = first; j < last; ++j, poll(n)) {
          to_float(src + (o * count + order[size_t(j)]) * x.inner + k, term, n);
          for (int64_t i = 0; i < n; ++i) sum[i] += term[i] * alpha;
        }
        from_float(sum, to, n);
      }
    }
  };
  constexpr int64_t kGrain = 8 << 10;
  if (x.outer > 1 || x.inner < 32)
    parallel_for(x.outer, kGrain / (count * x.inner) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) add(o, 0, x.inner);
    });
  else
    parallel_for(x.inner, std::max<int64_t>(16, kGrain / count + 1),
                 [&](int64_t begin, int64_t end) { add(0, begin, end); });
}

}  // namespace

void add_half_rows(DType dtype, const Lines& x, std::span<const int64_t> positions, const void* src, void* out,
                   double alpha) {
  const auto add = [&](auto* to) {
    add_rows(x, positions, static_cast<const std::remove_pointer_t<decltype(to)>*>(src), to, float(alpha));
  };
  dtype == DType::kFloat16 ? add(static_cast<Half*>(out)) : add(static_cast<BFloat16*>(out));
}

}  // namespace pg::cpu
