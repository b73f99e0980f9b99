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

template <class T>
WorkVector<int64_t> order_elements(const T* x, int64_t n) {
  LineSorter<Wide> sorter(n, n);
  const Wide* items = sorter.sort(x, false);
  WorkVector<int64_t> order(static_cast<size_t>(n));
  parallel_for(n, kLongLine, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) order[size_t(i)] = items[i].at;
  });
  return order;
}

template <class T>
void find_unique(const KernelArgs& a, bool neighbors) {
  const View& x = a.in[0];
  const T* from = x.as<T>();
  const bool slices = a.has_attr("dim");
  const int dim = slices ? a.dim("dim", x.rank()) : 0;
  Lines lines(slices && x.rank() ? x.shape() : Dims{x.numel()}, dim);
  const bool empty = x.numel() == 0;  // no element to compare or copy, whatever the number of slices, which are equal
  if (empty) lines.outer = 0;
  const int64_t n = lines.n, inner = lines.inner, base = a.attr<int64_t>("index_base");
  const int64_t compared = empty ? std::min<int64_t>(n, 1) : n;
  const bool elements = lines.outer * inner == 1;
  WorkVector<int64_t> order;
  if (!neighbors && !empty) order = elements ? order_elements(from, n) : order_slices(from, lines);
  const auto place = [at = order.empty() ? nullptr : order.data()](int64_t i) { return at ? at[i] : i; };
  Poller poll;
  const auto same = [&](int64_t p, int64_t q) {  // NaN is not equal to NaN
    for (int64_t o = 0; o < lines.outer; ++o, poll(inner))
      if (!std::equal(from + (o * n + p) * inner, from + (o * n + p + 1) * inner, from + (o * n + q) * inner))
        return false;
    return true;
  };
  WorkVector<int64_t> starts(size_t(compared + 1));
  int64_t count = 0;
  for (int64_t i = 0; i < compared; ++i, poll()) {
    starts[size_t(count)] = i;  // kept if i is one
    const int64_t p = place(i), q = i ? place(i - 1) : p;
    count += i == 0 || !(elements ? from[p] == from[q] : same(p, q));
  }
  starts[size_t(count)] = n;
  Dims shape = slices && x.rank() ? x.shape() : Dims{count};
  shape[dim] = count;
  const View values = a.allocate(0, shape);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t u = 0; u < count; ++u, poll(inner)) {
      const T* slice = from + (o * n + place(starts[size_t(u)])) * inner;
      T* to = values.as<T>() + (o * count + u) * inner;
      for (int64_t i = 0; i < inner; ++i) to[i] = slice[i];
    }
  int next = 1;
  if (a.attr<bool>("return_inverse")) {
    const View inverse = a.allocate(next++, slices ? Dims{n} : x.shape());
    if (empty) std::fill_n(inverse.as<int64_t>(), inverse.numel(), base);
    for (int64_t u = 0; u < count && !empty; ++u)
      for (int64_t i = starts[size_t(u)]; i < starts[size_t(u + 1)]; ++i, poll())
        inverse.as<int64_t>()[place(i)] = u + base;
  }
  if (!a.attr<bool>("return_counts")) return;
  const View counts = a.allocate(next, {count});
  for (int64_t u = 0; u < count; ++u) counts.as<int64_t>()[u] = starts[size_t(u + 1)] - starts[size_t(u)];
}

void unique_kernel(const KernelArgs& a) {
  visit_dtype(a.in[0].dtype(), [&](auto tag) { find_unique<typename decltype(tag)::type>(a, false); });
}

void unique_consecutive_kernel(const KernelArgs& a) {
  visit_dtype(a.in[0].dtype(), [&](auto tag) { find_unique<typename decltype(tag)::type>(a, true); });
}

void bincount_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &weights = a.in[1];
  const int64_t n = x.numel(), base = a.attr<int64_t>("index_base");
  WorkVector<int64_t> memory(x.dtype() == DType::kInt64 ? 0 : size_t(n));
  if (!memory.empty()) convert(x.dtype(), x.data, DType::kInt64, memory.data(), n);
  const std::span<const int64_t> labels(memory.empty() ? x.as<const int64_t>() : memory.data(), size_t(n));
  const int64_t parts = std::clamp<int64_t>(n / kLongLine, 1, num_threads());
  const auto in_parts = [&](const auto& f) {  // of the labels
    parallel_parts(parts, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        in_polled_blocks(n * (p + 1) / parts - n * p / parts, 64 << 10,
                         [&](int64_t begin, int64_t end) { f(p, n * p / parts + begin, n * p / parts + end); });
    });
  };
  WorkVector<int64_t> lows(size_t(parts), base), highs(size_t(parts), base - 1);
  in_parts([&](int64_t p, int64_t begin, int64_t end) {
    int64_t low = lows[size_t(p)], high = highs[size_t(p)];
    for (int64_t i = begin; i < end; ++i)
      low = std::min(low, labels[size_t(i)]), high = std::max(high, labels[size_t(i)]);
    lows[size_t(p)] = low, highs[size_t(p)] = high;
  });
  const int64_t low = *std::min_element(lows.begin(), lows.end()), high = *std::max_element(highs.begin(), highs.end());
  constexpr int64_t kMost = int64_t(1) << 40;
  if (low < base || high - base >= kMost) {
    const auto bad = [&](int64_t label) { return label < base || label - base >= kMost; };
    const auto at = std::find_if(labels.begin(), labels.end(), bad);
    bad_argument(a.op.name, "x", *at < base ? fmt::format("labels from {} on", base) : "labels below 2^40",
                 fmt::format("{} at position {}", *at, at - labels.begin() + 1));
  }
  const View out = a.allocate(0, {std::max(a.attr<int64_t>("minlength"), high - base + 1)});
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  if (!weights) {
    const int64_t bins = out.numel();
    const auto count = [&](int64_t* counts, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++counts[labels[size_t(i)] - base];
    };
    if (parts == 1 || bins > n / 4)
      return in_polled_blocks(n, 1 << 16, [&](int64_t begin, int64_t end) { count(out.as<int64_t>(), begin, end); });
    WorkVector<int64_t> counts(size_t(parts * bins), 0);
    in_parts([&](int64_t p, int64_t begin, int64_t end) { count(&counts[size_t(p * bins)], begin, end); });
    for (int64_t p = 0; p < parts; ++p)
      for (int64_t i = 0; i < bins; ++i) out.as<int64_t>()[i] += counts[size_t(p * bins + i)];
    return;
  }
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
      {"unique", unique_kernel},
      {"bincount", bincount_kernel},
      {"bin_counts", bin_counts_kernel},
      {"searchsorted", searchsorted_kernel},
      {"unique_consecutive", unique_consecutive_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
