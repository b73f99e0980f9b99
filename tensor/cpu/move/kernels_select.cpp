// Kernels that find the element at a place in the order of a line, without sorting it: medians and the k-th smallest.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"

namespace pg {
namespace {

using namespace cpu;

constexpr int kBits = 10;                        // of a digit
constexpr int64_t kPart = 32 << 10;              // values that are worth a thread
using Digits = std::array<int64_t, 1 << kBits>;  // how often each digit occurs

// Of a line, for one thread: the digits, and where it puts the items that it has found.
struct Part {
  Digits counts{};
  int64_t next = 0, stop = 0;
};

// Returns the digit of the item that `place` others precede, and takes the smaller ones from `place`.
size_t digit_at(const Digits& counts, int64_t& place) {
  size_t digit = 0;
  while (place >= counts[digit]) place -= counts[digit++];
  return digit;
}

// The item that `place` others of the n values precede. The upper bits of the keys are counted first, so that only
// items that agree with it in them are looked at further, in the same way while they are many.
template <class Item, class T>
Item item_at(const T* values, int64_t n, int64_t place, WorkVector<Item>& items) {
  using Key = decltype(key_of(T()));
  constexpr int kTop = int(sizeof(Key)) * 8 - kBits;
  constexpr int64_t kShort = 256;  // where counting would cost more
  if (n < kShort) {
    items.resize(size_t(n));
    for (int64_t i = 0; i < n; ++i) items[size_t(i)] = Item(key_of(values[i]), i);
    std::nth_element(items.begin(), items.begin() + place, items.end());
    return items[size_t(place)];
  }
  const int64_t parts = std::clamp<int64_t>(n / kPart, 1, num_threads());
  const auto in_parts = [&](const auto& f) {
    parallel_parts(parts, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        in_polled_blocks(n * (p + 1) / parts - n * p / parts, 64 << 10,
                         [&](int64_t begin, int64_t end) { f(size_t(p), n * p / parts + begin, n * p / parts + end); });
    });
  };
  Part single;
  WorkVector<Part> several(size_t(parts > 1 ? parts : 0));
  const std::span<Part> own = parts > 1 ? std::span<Part>(several) : std::span<Part>(&single, 1);
  in_parts([&](size_t p, int64_t begin, int64_t end) {
    Digits& counts = own[p].counts;
    for (int64_t i = begin; i < end; ++i) ++counts[key_of(values[i]) >> kTop];
  });
  Digits total;
  if (parts > 1) total = {};
  for (const Part& part : several)
    for (size_t d = 0; d < total.size(); ++d) total[d] += part.counts[d];
  const size_t upper = digit_at(parts > 1 ? total : single.counts, place);
  int64_t count = 0;
  for (Part& part : own) part.next = count, part.stop = count += part.counts[upper];
  items.resize(size_t(count));
  in_parts([&](size_t p, int64_t begin, int64_t end) {
    int64_t found = own[p].next;
    for (int64_t i = begin; i < end && found < own[p].stop; ++i) {
      const Key key = key_of(values[i]);
      items[size_t(found)] = Item(key, i);  // overwritten if it is not one
      found += key >> kTop == upper;
    }
    own[p].next = found;
  });
  for (int shift = kTop - kBits; shift >= 0 && int64_t(items.size()) >= 4 * kShort; shift -= kBits) {
    const auto digit_of = [shift](const Item& item) { return item.order() >> shift & ((1 << kBits) - 1); };
    Poller poll;
    Digits counts{};
    for (const Item& item : items) ++counts[digit_of(item)], poll();
    const size_t digit = digit_at(counts, place);
    size_t found = 0;
    for (const Item item : items) {
      items[found] = item;
      found += digit_of(item) == digit;
      poll();
    }
    items.resize(found);
  }
  Poller poll;
  const std::less<Item> less;
  std::nth_element(items.begin(), items.begin() + place, items.end(), PolledOrder(less, poll));
  return items[size_t(place)];
}

// Writes the value and the position of the element at place_of(values, n) of each line; without `dim`, x is one line
// and the position is not wanted.
template <class F>
void select_kernel(const KernelArgs& a, F place_of) {
  const View& x = a.in[0];
  const bool whole = x.rank() == 0 || !a.has_attr("dim");
  const Lines lines(whole ? Dims{x.numel()} : x.shape(), whole ? 0 : a.dim("dim", x.rank()));
  const int64_t n = lines.n, base = a.attr<int64_t>("index_base");
  if (a.out[0].numel() == 0) return;
  visit_items(x, [&](auto tag, auto item) {
    using T = typename decltype(tag)::type;
    T* values = a.out[0].as<T>();
    if (n == 0) {
      if constexpr (!std::is_integral_v<T>) *values = T(std::numeric_limits<float>::quiet_NaN());
      return;
    }
    parallel_for(lines.outer * lines.inner, 2048 / n + 1, [&](int64_t begin, int64_t end) {
      WorkVector<typename decltype(item)::type> items;
      LineBuffer<T> buffer(lines);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = buffer.read(x.as<T>(), line);
        const int64_t position = item_at(from, n, place_of(from, n), items).position();
        values[line] = from[position];
        if (a.out.size() > 1) a.out[1].as<int64_t>()[line] = position + base;
      }
    });
  });
}

void kthvalue_kernel(const KernelArgs& a) {
  select_kernel(a, [k = a.attr<int64_t>("k")](const auto*, int64_t) { return k - 1; });
}

// The first NaN or, without NaN or if it is skipped, the lower middle one of the others. NaNs are the last in order.
template <bool skip_nan>
void median_kernel(const KernelArgs& a) {
  select_kernel(a, [](const auto* values, int64_t n) {
    Poller poll;
    int64_t numbers = 0;
    for (int64_t i = 0; i < n; ++i, poll()) numbers += values[i] == values[i];
    return numbers < n && !skip_nan ? numbers : std::max<int64_t>(numbers - 1, 0) / 2;
  });
}

}  // namespace

void add_select_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"kthvalue", kthvalue_kernel},
      {"median", median_kernel<false>},
      {"nanmedian", median_kernel<true>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
