#include "tensor/cpu/move/row_sums.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

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
void read(const T* from, Sum<T>* to, int64_t n) {
  if constexpr (kHalf<T>)
    if (n >= kNarrowRow) return to_float(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = Sum<T>(from[i]);
}
template <class T>
void write(const Sum<T>* from, T* to, int64_t n) {
  if constexpr (kHalf<T>)
    if (n >= kNarrowRow) return from_float(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
}

// to += from alpha
template <class S>
void add_scaled(const S* from, S alpha, S* to, int64_t n) {
  if (alpha == S(1))
    for (int64_t i = 0; i < n; ++i) to[i] = wrapped_sum(to[i], from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = wrapped_sum(to[i], wrapped_product(from[i], alpha));
}

constexpr int64_t kGrain = 8 << 10;  // elements that take about 10 µs

// Calls write(row of out, row of src) in the order of j for positions[j]. Threads take outer positions, else rows of
// the result: what is written by columns moves between their caches with each row.
template <class F>
void over_rows(const Lines& x, std::span<const int64_t> positions, int64_t work, const F& write) {
  const int64_t count = int64_t(positions.size());
  const auto run = [&](int64_t o, int64_t low, int64_t high) {
    Poller poll;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t position = positions[size_t(j)];
      poll();
      if (position < low || position >= high) continue;
      write(o * x.n + position, o * count + j);
      poll(work);
    }
  };
  if (x.outer > 1)
    parallel_for(x.outer, kGrain / (count * work) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) run(o, 0, x.n);
    });
  else
    share_rows(x.n, int64_t(double(kGrain) * double(x.n) / (double(count) * double(work))) + 1,
               [&](int64_t begin, int64_t end) { run(0, begin, end); });
}

constexpr int64_t kFewRows = 16;  // fewer are shared by columns

template <class T>
class RowSums {
 public:
  RowSums(const Lines& x, Groups groups, const T* src, T* out, Sum<T> alpha)
      : x_(x), groups_(std::move(groups)), src_(src), out_(out), alpha_(alpha) {}

  // Threads take outer positions, else rows of the result, or columns of few rows.
  void run() const {
    constexpr int64_t kColumns = 64;
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
    Sum<T> sum[kMost];
    [[maybe_unused]] Sum<T> term[kHalf<T> ? kMost : 1];
    Poller poll;
    groups_.each(begin, end, [&](int64_t position, int64_t first, int64_t last) {
      for (int64_t k = first_column; k < end_column; k += kMost) {
        const int64_t n = std::min(kMost, end_column - k);
        T* const to = out_ + (o * x_.n + position) * x_.inner + k;
        read(to, sum, n);
        for (int64_t j = first; j < last; ++j, poll(n)) {
          const T* from = src_ + (o * groups_.count() + groups_.index(j)) * x_.inner + k;
          if constexpr (kHalf<T>)
            read(from, term, n), add_scaled(term, alpha_, sum, n);
          else
            add_scaled(from, alpha_, sum, n);
        }
        write(sum, to, n);
      }
    });
  }

  const Lines& x_;
  const Groups groups_;
  const T* const src_;
  T* const out_;
  const Sum<T> alpha_;
};

}  // namespace

void add_rows(DType dtype, const Lines& x, std::span<const int64_t> positions, const void* src, void* out,
              double alpha) {
  if (positions.empty() || x.inner == 0) return;
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Sum<T> factor;
    store_number(kHalf<T> ? DType::kFloat32 : dtype, &factor, alpha);
    const T* const from = static_cast<const T*>(src);
    T* const to = static_cast<T*>(out);
    if constexpr (!kHalf<T>)
      if (x.outer > 1 || x.n >= kFewRows)
        return over_rows(x, positions, x.inner, [&](int64_t i, int64_t j) {
          add_scaled(from + j * x.inner, factor, to + i * x.inner, x.inner);
        });
    RowSums<T>(x, Groups(positions, x.n), from, to, factor).run();
  });
}

void assign_rows(const Lines& x, std::span<const int64_t> positions, const char* src, char* out, int64_t bytes) {
  if (positions.empty() || bytes == 0) return;
  over_rows(x, positions, (bytes + 3) / 4,
            [&](int64_t i, int64_t j) { std::memcpy(out + i * bytes, src + j * bytes, size_t(bytes)); });
}

}  // namespace pg::cpu
