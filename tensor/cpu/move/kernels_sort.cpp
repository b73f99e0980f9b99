// Kernels that sort, search and count values by the keys of order.h.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/move/sort_lines.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

// Sorts the lines of dim d and writes the first `keep` values and positions of each. `values` may be absent.
template <class Item, class T>
void order_lines(const KernelArgs& a, bool descending, int64_t keep, T* values, int64_t* indices) {
  const View& x = a.in[0];
  const Lines lines(x.shape(), x.rank() ? a.dim("dim", x.rank()) : 0);
  const int64_t n = lines.n, inner = lines.inner, base = a.attr<int64_t>("index_base");
  parallel_for(lines.outer * inner, 2048 / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
    LineSorter<Item> sorter(n, keep);
    LineBuffer<T> buffer(lines);
    for (int64_t line = begin; line < end; ++line) {
      const T* from = buffer.read(x.as<T>(), line);
      const Item* items = sorter.sort(from, descending);
      const int64_t to = line / inner * keep * inner + line % inner;
      parallel_for(keep, kLongLine / 4, [=](int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) {
          const int64_t position = items[k].position();
          if (values) values[to + k * inner] = from[position];
          indices[to + k * inner] = position + base;
        }
      });
    }
  });
}

void order_kernel(const KernelArgs& a, bool descending, int64_t keep, const View* values, const View& indices) {
  if (indices.numel() == 0) return;
  const View& x = a.in[0];
  visit_items(x, [&](auto tag, auto item) {
    using T = typename decltype(tag)::type;
    T* to = values ? values->as<T>() : nullptr;
    order_lines<typename decltype(item)::type>(a, descending, keep, to, indices.as<int64_t>());
  });
}

int64_t line_size(const KernelArgs& a) { return a.in[0].rank() ? a.in[0].size(a.dim("dim", a.in[0].rank())) : 1; }

void sort_kernel(const KernelArgs& a) {
  order_kernel(a, a.attr<bool>("descending"), line_size(a), &a.out[0], a.out[1]);
}
void argsort_kernel(const KernelArgs& a) {
  order_kernel(a, a.attr<bool>("descending"), line_size(a), nullptr, a.out[0]);
}
void topk_kernel(const KernelArgs& a) {
  order_kernel(a, a.attr<bool>("largest"), a.attr<int64_t>("k"), &a.out[0], a.out[1]);
}

// Returns the positions along the dim of `lines`, with their slices in lexicographic order.
template <class T>
WorkVector<int64_t> order_slices(const T* x, const Lines& lines) {
  const int64_t n = lines.n, inner = lines.inner;
  Poller poll;
  const auto less = [&](int64_t a, int64_t b) {  // equal slices by their positions: no order needs further memory
    for (int64_t o = 0; o < lines.outer; ++o) {
      const T *p = x + (o * n + a) * inner, *q = x + (o * n + b) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        poll();
        if (key_of(p[i]) != key_of(q[i])) return key_of(p[i]) < key_of(q[i]);
      }
    }
    return a < b;
  };
  WorkVector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t(0));
  std::sort(order.begin(), order.end(), less);
  return order;
}

// A long array in parts, one a thread.
struct Parts {
  int64_t n, count;
  explicit Parts(int64_t size) : n(size), count(std::clamp<int64_t>(size / kLongLine, 1, num_threads())) {}
  // Calls f(part, begin, end) for blocks of the parts, those of one part in their order.
  template <class F>
  void each(const F& f) const {
    parallel_parts(count, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t start = n * p / count;
        in_polled_blocks(n * (p + 1) / count - start, 64 << 10,
                         [&](int64_t begin, int64_t end) { f(p, start + begin, start + end); });
      }
    });
  }
};

// The least and the greatest of n values; n is at least 1.
template <class T>
std::pair<T, T> range_of(const T* x, const Parts& parts) {
  WorkVector<T> lows(size_t(parts.count), x[0]), highs = lows;
  parts.each([&](int64_t p, int64_t begin, int64_t end) {
    T low = lows[size_t(p)], high = highs[size_t(p)];
    for (int64_t i = begin; i < end; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
    lows[size_t(p)] = low, highs[size_t(p)] = high;
  });
  return {*std::min_element(lows.begin(), lows.end()), *std::max_element(highs.begin(), highs.end())};
}

// Adds to counts[v - low] the number of values v, which are those from `low` to low + bins - 1.
template <class T>
void count_values(const T* x, const Parts& parts, T low, int64_t bins, int64_t* counts) {
  const auto count = [=](int64_t* to, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++to[uint64_t(x[i]) - uint64_t(low)];
  };
  if (parts.count == 1 || bins > parts.n / 4)
    return in_polled_blocks(parts.n, 1 << 16, [&](int64_t begin, int64_t end) { count(counts, begin, end); });
  WorkVector<int64_t> own(size_t(parts.count * bins), 0);
  parts.each([&](int64_t p, int64_t begin, int64_t end) { count(&own[size_t(p * bins)], begin, end); });
  for (int64_t p = 0; p < parts.count; ++p)
    for (int64_t i = 0; i < bins; ++i) counts[i] += own[size_t(p * bins + i)];
}

// What unique returns.
class Distinct {
 public:
  explicit Distinct(const KernelArgs& a)
      : base(a.attr<int64_t>("index_base")),
        has_inverse(a.attr<bool>("return_inverse")),
        has_counts(a.attr<bool>("return_counts")),
        slices(a.has_attr("dim")),
        dim(slices ? a.dim("dim", a.in[0].rank()) : 0),
        lines(slices && a.in[0].rank() ? a.in[0].shape() : Dims{a.in[0].numel()}, dim),
        a_(a) {}
  View values(int64_t count) const {
    Dims shape = slices && a_.in[0].rank() ? a_.in[0].shape() : Dims{count};
    shape[dim] = count;
    return a_.allocate(0, shape);
  }
  int64_t* inverse() const { return a_.allocate(1, slices ? Dims{lines.n} : a_.in[0].shape()).as<int64_t>(); }
  int64_t* counts(int64_t count) const { return a_.allocate(has_inverse ? 2 : 1, {count}).as<int64_t>(); }

  const int64_t base;
  const bool has_inverse, has_counts, slices;
  const int dim;
  const Lines lines;

 private:
  const KernelArgs& a_;
};

// Finds distinct integers by counting each. Returns false, with nothing done, if their range is too large.
template <class T>
bool unique_by_counts(const Distinct& d, const T* x, int64_t n) {
  const Parts parts(n);
  const auto [low, high] = range_of(x, parts);
  const uint64_t span = uint64_t(high) - uint64_t(low);
  if (span >= uint64_t(n)) return false;
  const int64_t bins = int64_t(span) + 1;
  WorkVector<int64_t> table(size_t(bins), 0);  // counts, then numbers of values
  count_values(x, parts, low, bins, table.data());
  const int64_t count = bins - std::count(table.begin(), table.end(), 0);
  T* const values = d.values(count).as<T>();
  int64_t* const inverse = d.has_inverse ? d.inverse() : nullptr;
  int64_t* const counts = d.has_counts ? d.counts(count) : nullptr;
  for (int64_t b = 0, u = 0; b < bins; ++b) {
    if (table[size_t(b)] == 0) continue;
    values[u] = T(uint64_t(low) + uint64_t(b));
    if (counts) counts[u] = table[size_t(b)];
    table[size_t(b)] = d.base + u++;
  }
  if (inverse)
    parallel_for(n, kLongLine / 4, [&, low = low](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) inverse[i] = table[size_t(uint64_t(x[i]) - uint64_t(low))];
    });
  return true;
}

// An item without a position, for values that are equal only if their bits are.
struct Bare {
  uint64_t key;
  Bare() = default;
  explicit Bare(uint64_t k) : key(k) {}
  uint64_t order() const { return key; }
  bool operator<(const Bare& o) const { return key < o.key; }
};

WorkVector<int64_t> sorted(const int64_t* x, int64_t n) {
  WorkVector<Bare> items(size_t(times(2, n)));
  parallel_for(n, kLongLine / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) items[size_t(i)] = Bare(key_of(x[i]));
  });
  const Bare* const in_order = sort_items(items.data(), items.data() + n, n);
  WorkVector<int64_t> out(static_cast<size_t>(n));
  parallel_for(n, kLongLine / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[size_t(i)] = int64_t(in_order[i].key ^ key_of(int64_t(0)));
  });
  return out;
}

// Returns get(position) for the positions of n values in the order of these.
template <class R, class T, class Get>
WorkVector<R> in_order(const T* x, int64_t n, const Get& get) {
  WorkVector<R> out(static_cast<size_t>(n));
  visit_item<T>(n, [&](auto tag) {
    using Item = typename decltype(tag)::type;
    LineSorter<Item> sorter(n, n);
    const Item* const items = sorter.sort(x, false);
    parallel_for(n, kLongLine / 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[size_t(i)] = get(items[i].position());
    });
  });
  return out;
}

template <class T>
WorkVector<T> sorted(const T* x, int64_t n) {
  return in_order<T>(x, n, [x](int64_t i) { return x[i]; });
}

// NaN is not equal to NaN. Comparing halves by their keys converts none.
template <class T>
bool same_value(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) return a == b;
  const auto key = key_of(a);
  return key == key_of(b) && key != 0xffff0000u;
}

// Finds the runs of equal values among n of them, which are x[order[i]], or x[i] if `order` is null. NaN is not equal
// to NaN.
template <class T>
void find_runs(const Distinct& d, const T* x, const int64_t* order, int64_t n) {
  const Parts parts(n);
  const auto place = [=](int64_t i) { return order ? order[i] : i; };
  const auto starts = [=](int64_t i) { return i == 0 || !same_value(x[place(i)], x[place(i - 1)]); };
  WorkVector<int64_t> next(size_t(parts.count), 0);  // the runs that start before a part
  parts.each([&](int64_t p, int64_t begin, int64_t end) {
    int64_t own = 0;
    for (int64_t i = begin; i < end; ++i) own += starts(i);
    next[size_t(p)] += own;
  });
  int64_t count = 0;
  for (int64_t& at : next) count += std::exchange(at, count);
  T* const values = d.values(count).template as<T>();
  int64_t* const inverse = d.has_inverse ? d.inverse() : nullptr;
  int64_t* const counts = d.has_counts ? d.counts(count) : nullptr;
  parts.each([&](int64_t p, int64_t begin, int64_t end) {
    int64_t u = next[size_t(p)];
    for (int64_t i = begin; i < end; ++i) {
      if (starts(i)) {
        values[u] = x[place(i)];
        if (counts) counts[u] = i;
        ++u;
      }
      if (inverse) inverse[place(i)] = u - 1 + d.base;
    }
    next[size_t(p)] = u;
  });
  for (int64_t u = 0; counts && u < count; ++u) counts[u] = (u + 1 < count ? counts[u + 1] : n) - counts[u];
}

// Finds distinct slices. Without elements there is nothing to compare or copy, whatever the number of slices, which are
// equal.
template <class T>
void unique_slices(const Distinct& d, const T* x, bool neighbors, bool empty) {
  const int64_t n = d.lines.n, inner = d.lines.inner, outer = empty ? 0 : d.lines.outer;
  WorkVector<int64_t> order;
  if (!neighbors && !empty) order = order_slices(x, d.lines);
  const auto place = [at = order.empty() ? nullptr : order.data()](int64_t i) { return at ? at[i] : i; };
  Poller poll;
  const auto same = [&](int64_t p, int64_t q) {  // NaN is not equal to NaN
    for (int64_t o = 0; o < outer; ++o, poll(inner))
      if (!std::equal(x + (o * n + p) * inner, x + (o * n + p + 1) * inner, x + (o * n + q) * inner)) return false;
    return true;
  };
  const int64_t compared = empty ? std::min<int64_t>(n, 1) : n;
  WorkVector<int64_t> starts(size_t(compared + 1));
  int64_t count = 0;
  for (int64_t i = 0; i < compared; ++i, poll()) {
    starts[size_t(count)] = i;  // kept if i is one
    count += i == 0 || !same(place(i), place(i - 1));
  }
  starts[size_t(count)] = n;
  T* const values = d.values(count).template as<T>();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t u = 0; u < count; ++u, poll(inner))
      std::copy_n(x + (o * n + place(starts[size_t(u)])) * inner, inner, values + (o * count + u) * inner);
  if (d.has_inverse) {
    int64_t* const inverse = d.inverse();
    if (empty) std::fill_n(inverse, d.slices ? n : 0, d.base);
    for (int64_t u = 0; u < count && !empty; ++u)
      for (int64_t i = starts[size_t(u)]; i < starts[size_t(u + 1)]; ++i, poll()) inverse[place(i)] = u + d.base;
  }
  if (!d.has_counts) return;
  int64_t* const counts = d.counts(count);
  for (int64_t u = 0; u < count; ++u) counts[u] = starts[size_t(u + 1)] - starts[size_t(u)];
}

template <class T>
void find_unique(const KernelArgs& a, bool neighbors) {
  const Distinct d(a);
  const T* const x = a.in[0].as<const T>();
  const int64_t n = a.in[0].numel();
  if (n == 0 || d.lines.outer * d.lines.inner != 1) return unique_slices(d, x, neighbors, n == 0);
  if (neighbors) return find_runs(d, x, nullptr, n);
  if constexpr (std::is_integral_v<T>)
    if (unique_by_counts(d, x, n)) return;
  if (d.has_inverse)
    find_runs(d, x, in_order<int64_t>(x, n, [](int64_t i) { return i; }).data(), n);
  else
    find_runs(d, sorted(x, n).data(), nullptr, n);
}

template <bool neighbors>
void unique_kernel(const KernelArgs& a) {
  visit_dtype(a.in[0].dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    find_unique<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>(a, neighbors);
  });
}

void bincount_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &weights = a.in[1];
  const int64_t n = x.numel(), base = a.attr<int64_t>("index_base");
  WorkVector<int64_t> memory(x.dtype() == DType::kInt64 ? 0 : size_t(n));
  if (!memory.empty()) convert(x.dtype(), x.data, DType::kInt64, memory.data(), n);
  const std::span<const int64_t> labels(memory.empty() ? x.as<const int64_t>() : memory.data(), size_t(n));
  const Parts parts(n);
  const auto [low, high] = n ? range_of(labels.data(), parts) : std::pair(base, base - 1);
  constexpr int64_t kMost = int64_t(1) << 40;
  if (low < base || high - base >= kMost) {
    const auto bad = [&](int64_t label) { return label < base || label - base >= kMost; };
    const auto at = std::find_if(labels.begin(), labels.end(), bad);
    bad_argument(a.op.name, "x", *at < base ? fmt::format("labels from {} on", base) : "labels below 2^40",
                 fmt::format("{} at position {}", *at, at - labels.begin() + 1));
  }
  const View out = a.allocate(0, {std::max(a.attr<int64_t>("minlength"), high - base + 1)});
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  if (!weights) return count_values(labels.data(), parts, base, out.numel(), out.as<int64_t>());
  Poller poll;
  for (int64_t i = 0; i < n; ++i, poll()) {
    const int64_t bin = labels[size_t(i)] - base;
    const double w = load_number(weights.dtype(), weights.as<char>() + i * size_of(weights.dtype()));
    if (out.dtype() == DType::kFloat32)
      out.as<float>()[bin] += float(w);
    else
      out.as<double>()[bin] += w;
  }
}

// The last of `bins` bins that starts at or below x, which is in their range: tried are the bin that x has between
// equal edges and its neighbors.
template <class T>
int64_t bin_of(T x, const T* edges, int64_t bins, double scale) {
  const double guess = (double(x) - double(edges[0])) * scale;
  int64_t at = guess < double(bins) ? int64_t(guess) : bins - 1;
  at += int64_t(x >= edges[at + 1]) - int64_t(x < edges[at]);
  at = std::clamp<int64_t>(at, 0, bins - 1);
  if (x >= edges[at] && (x < edges[at + 1] || at == bins - 1)) return at;
  return std::clamp<int64_t>(std::upper_bound(edges, edges + bins + 1, x) - edges - 1, 0, bins - 1);
}

template <class T>
void count_bins(const T* x, int64_t n, const T* edges, int64_t bins, int64_t* counts) {
  const T low = edges[0], high = edges[bins];
  const double width = double(high) - double(low), scale = std::isfinite(width) ? double(bins) / width : 0;
  for (int64_t i = 0; i < n; ++i)
    if (x[i] >= low && x[i] <= high) ++counts[bin_of(x[i], edges, bins, scale)];
}

// Few parts, so that their counts take less memory and time than x.
void bin_counts_kernel(const KernelArgs& a) {
  constexpr int64_t kMostParts = 16, kPart = 32 << 10;
  const int64_t n = a.in[0].numel(), bins = a.out[0].numel();
  const int64_t parts = std::clamp<int64_t>(n / std::max(kPart, 4 * bins), 1, kMostParts),
                size = (n + parts - 1) / parts;
  WorkVector<int64_t> counts(size_t(times(parts, bins)), 0);
  const auto count = [&]<class T>(const T* x, const T* edges) {
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        in_polled_blocks(std::min(size, n - p * size), kPart, [&](int64_t from, int64_t to) {
          count_bins(x + p * size + from, to - from, edges, bins, counts.data() + p * bins);
        });
    });
  };
  if (a.in[0].dtype() == DType::kFloat32)
    count(a.in[0].as<const float>(), a.in[1].as<const float>());
  else
    count(a.in[0].as<const double>(), a.in[1].as<const double>());
  int64_t* const out = a.out[0].as<int64_t>();
  for (int64_t i = 0; i < bins; ++i) {
    out[i] = counts[size_t(i)];
    for (int64_t p = 1; p < parts; ++p) out[i] += counts[size_t(p * bins + i)];
  }
}

// The number of elements of [begin, begin + n) that come before a value: a binary search without branches, so that the
// processor works on several searches at once.
template <class Key, class Before>
int64_t count_before(const Key* begin, int64_t n, Before before) {
  const Key* at = begin;
  for (; n > 1; n -= n / 2) at += -int64_t(before(at[n / 2 - 1])) & (n / 2);
  return at - begin + (n == 1 && before(*at));
}

// Both inputs have, or are converted to, the dtype T, in which their values compare exactly.
template <class T>
void search_sorted(const KernelArgs& a, DType t) {
  const View &sequence = a.in[0], &values = a.in[1], &out = a.out[0];
  WorkVector<T> copies[2];
  const T* from[2];
  for (size_t i = 0; i < 2; ++i) {
    const View& v = a.in[i];
    from[i] = v.as<T>();
    if (v.dtype() == t) continue;
    copies[i].resize(size_t(v.numel()));
    convert(v.dtype(), v.data, t, copies[i].data(), v.numel());
    from[i] = copies[i].data();
  }
  using Key = decltype(key_of(T()));
  WorkVector<Key> sorted(static_cast<size_t>(sequence.numel()));
  std::transform(from[0], from[0] + sequence.numel(), sorted.begin(), [](T v) { return key_of(v); });
  const int64_t n = sequence.size(sequence.rank() - 1), base = a.attr<int64_t>("index_base");
  const int64_t row = sequence.rank() > 1 ? values.size(values.rank() - 1) : std::max<int64_t>(values.numel(), 1);
  const bool right = a.attr<bool>("right");
  parallel_for(values.numel(), 1000, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const Key* line = sorted.data() + i / row * n;
      for (const int64_t stop = std::min(end, (i / row + 1) * row); i < stop; ++i) {
        const Key key = key_of(from[1][i]);
        const int64_t at = right ? count_before(line, n, [key](Key k) { return k <= key; })
                                 : count_before(line, n, [key](Key k) { return k < key; });
        out.as<int64_t>()[i] = at + base;
      }
    }
  });
}

void searchsorted_kernel(const KernelArgs& a) {
  const DType x = a.in[0].dtype(), y = a.in[1].dtype();
  if (x == DType::kFloat32 && y == x) return search_sorted<float>(a, x);
  if (is_float(x) || is_float(y)) return search_sorted<double>(a, DType::kFloat64);
  search_sorted<int64_t>(a, DType::kInt64);
}

}  // namespace

void add_sort_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"sort", sort_kernel},
      {"argsort", argsort_kernel},
      {"topk", topk_kernel},
      {"unique", unique_kernel<false>},
      {"bincount", bincount_kernel},
      {"bin_counts", bin_counts_kernel},
      {"searchsorted", searchsorted_kernel},
      {"unique_consecutive", unique_kernel<true>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
