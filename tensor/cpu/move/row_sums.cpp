#include "tensor/cpu/move/row_sums.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/half.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/wrap.h"
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

// Positions with the order of their indices by groups.
class Groups {
 public:
  Groups(std::span<const int64_t> positions, int64_t size) : positions_(positions), order_(grouped(positions, size)) {}
  int64_t count() const { return int64_t(order_.size()); }
  int64_t index(int64_t k) const { return order_[size_t(k)]; }
  int64_t position(int64_t k) const { return positions_[size_t(index(k))]; }

  // Calls f(position, first, last) for the groups that start in [begin, end): their indices are index(first) to
  // index(last - 1).
  template <class F>
  void each(int64_t begin, int64_t end, const F& f) const {
    while (begin > 0 && begin < end && position(begin) == position(begin - 1)) ++begin;
    for (int64_t first = begin, last = begin; first < end; first = last) {
      while (last < count() && position(last) == position(first)) ++last;
      f(position(first), first, last);
    }
  }

 private:
  std::span<const int64_t> positions_;
  WorkVector<int64_t> order_;
};

template <class T>
constexpr bool kHalf = !std::is_arithmetic_v<T>;
template <class T>
using Sum = std::conditional_t<kHalf<T>, float, T>;

// A call of a converter costs as much as some elements.
template <class T>
const Sum<T>* read(const T* from, [[maybe_unused]] Sum<T>* to, [[maybe_unused]] int64_t n) {
  if constexpr (kHalf<T>) {
    if (n >= kNarrowRow)
      to_float(from, to, n);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
    return to;
  } else {
    return from;
  }
}
template <class T>
void write(const Sum<T>* from, T* to, int64_t n) {
  if constexpr (kHalf<T>)
    if (n >= kNarrowRow) return from_float(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
}

// to = a + b alpha, where `to` may be a.
template <class S>
void add_scaled(const S* a, const S* b, S alpha, S* to, int64_t n) {
  if (alpha == S(1))
    for (int64_t i = 0; i < n; ++i) to[i] = wrapped_sum(a[i], b[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = wrapped_sum(a[i], wrapped_product(b[i], alpha));
}

constexpr int64_t kGrain = 8 << 10;  // elements that take about 10 µs

template <class T>
class RowSums {
 public:
  RowSums(const Lines& x, const Groups& groups, const T* src, T* out, Sum<T> alpha)
      : x_(x), groups_(groups), src_(src), out_(out), alpha_(alpha) {}

  // Threads take outer positions, else rows of the result: what is written by columns moves between their caches with
  // each row. Columns it is where there are few rows.
  void run() const {
    constexpr int64_t kFewRows = 16, kColumns = 64;
    const int64_t count = groups_.count();
    if (x_.outer > 1 || x_.inner < kNarrowRow)
      parallel_for(x_.outer, kGrain / (count * x_.inner) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) add(o, 0, count, 0, x_.inner);
      });
    else if (x_.n >= kFewRows)
      parallel_for(count, kGrain / x_.inner + 1, [&](int64_t begin, int64_t end) { add(0, begin, end, 0, x_.inner); });
    else
      parallel_for(
          (x_.inner + kColumns - 1) / kColumns, kGrain / (count * kColumns) + 1,
          [&](int64_t begin, int64_t end) { add(0, 0, count, begin * kColumns, std::min(end * kColumns, x_.inner)); });
  }

 private:
  static constexpr int64_t kMost = 1024;  // columns at a time

  // Columns [first_column, end_column) of the groups that start in [begin, end), for rows `o`.
  void add(int64_t o, int64_t begin, int64_t end, int64_t first_column, int64_t end_column) const {
    Sum<T> sum[kMost], term[kMost];
    Poller poll;
    groups_.each(begin, end, [&](int64_t position, int64_t first, int64_t last) {
      for (int64_t k = first_column; k < end_column; k += kMost) {
        const int64_t n = std::min(kMost, end_column - k);
        T* const to = out_ + (o * x_.n + position) * x_.inner + k;
        const Sum<T>* so_far = read(to, sum, n);
        for (int64_t j = first; j < last; ++j, poll(n)) {
          const T* const from = src_ + (o * groups_.count() + groups_.index(j)) * x_.inner + k;
          add_scaled(so_far, read(from, term, n), alpha_, sum, n);
          so_far = sum;
        }
        write(sum, to, n);
      }
    });
  }

  const Lines& x_;
  const Groups& groups_;
  const T* const src_;
  T* const out_;
  const Sum<T> alpha_;
};

}  // namespace

void add_rows(DType dtype, const Lines& x, std::span<const int64_t> positions, const void* src, void* out,
              double alpha) {
  if (positions.empty() || x.inner == 0) return;
  const Groups groups(positions, x.n);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Sum<T> factor;
    store_number(kHalf<T> ? DType::kFloat32 : dtype, &factor, alpha);
    RowSums<T>(x, groups, static_cast<const T*>(src), static_cast<T*>(out), factor).run();
  });
}

void assign_rows(const Lines& x, std::span<const int64_t> positions, const char* src, char* out, int64_t bytes) {
  if (positions.empty() || bytes == 0) return;
  const Groups groups(positions, x.n);
  const int64_t count = groups.count();
  const auto assign = [&](int64_t o, int64_t begin, int64_t end) {
    Poller poll;
    groups.each(begin, end, [&](int64_t position, int64_t, int64_t last) {
      std::memcpy(out + (o * x.n + position) * bytes, src + (o * count + groups.index(last - 1)) * bytes,
                  size_t(bytes));
      poll(bytes);
    });
  };
  const int64_t grain = kGrain * 4 / bytes + 1;
  if (x.outer > 1)
    parallel_for(x.outer, grain / count + 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) assign(o, 0, count);
    });
  else
    parallel_for(count, grain, [&](int64_t begin, int64_t end) { assign(0, begin, end); });
}

}  // namespace pg::cpu
