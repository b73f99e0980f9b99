#include "tensor/cpu/move/row_sums.h"

#include <algorithm>
#include <type_traits>

#include "tensor/cpu/half.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// Returns the indices of the positions, which are below `size`, with those of one position next to each other and in
// their order.
WorkVector<int64_t> grouped(std::span<const int64_t> positions, int64_t size) {
  const int64_t count = int64_t(positions.size());
  WorkVector<int64_t> order(positions.size());
  Poller poll;
  if (size > 8 * count) {
    for (int64_t j = 0; j < count; ++j, poll()) order[size_t(j)] = j;
    const auto before = [&](int64_t a, int64_t b) {  // by the index, too: no order needs further memory
      const int64_t p = positions[size_t(a)], q = positions[size_t(b)];
      return p != q ? p < q : a < b;
    };
    std::sort(order.begin(), order.end(), PolledOrder(before, poll));
    return order;
  }
  WorkVector<int64_t> next(size_t(size) + 1, 0);
  for (int64_t p : positions) ++next[size_t(p) + 1], poll();
  for (int64_t p = 0; p < size; ++p, poll()) next[size_t(p) + 1] += next[size_t(p)];
  for (int64_t j = 0; j < count; ++j, poll()) order[size_t(next[size_t(positions[size_t(j)])]++)] = j;
  return order;
}

// A call of a converter costs as much as some elements.
template <class T>
void read(const T* from, float* to, int64_t n) {
  if (n >= kNarrowRow) return to_float(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
}
template <class T>
void write(const float* from, T* to, int64_t n) {
  if (n >= kNarrowRow) return from_float(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
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
        read(to, sum, n);
        for (int64_t j = first; j < last; ++j, poll(n)) {
          read(src + (o * count + order[size_t(j)]) * x.inner + k, term, n);
          for (int64_t i = 0; i < n; ++i) sum[i] += term[i] * alpha;
        }
        write(sum, to, n);
      }
    }
  };
  constexpr int64_t kGrain = 8 << 10;
  if (x.outer > 1 || x.inner < kNarrowRow)
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
  if (positions.empty() || x.inner == 0) return;
  const auto add = [&](auto* to) {
    add_rows(x, positions, static_cast<const std::remove_pointer_t<decltype(to)>*>(src), to, float(alpha));
  };
  dtype == DType::kFloat16 ? add(static_cast<Half*>(out)) : add(static_cast<BFloat16*>(out));
}

}  // namespace pg::cpu
