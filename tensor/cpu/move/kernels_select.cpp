// Kernels that find the element at a place in the order of a line, without sorting it: medians and the k-th smallest.
#include <algorithm>
#include <functional>
#include <limits>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"

namespace pg {
namespace {

using namespace cpu;

// The item that `place` others of the n values precede. The upper bits of the keys are counted first, so that only
// items that agree with it in them are partitioned.
template <class Item, class T>
Item item_at(const T* values, int64_t n, int64_t place, WorkVector<Item>& items) {
  using Key = decltype(key_of(T()));
  constexpr int kBits = 10, kShift = int(sizeof(Key)) * 8 - kBits;
  constexpr int64_t kShort = 256;  // where counting would cost more
  const std::less<Item> less;
  Poller poll;
  if (n < kShort) {
    items.resize(size_t(n));
    for (int64_t i = 0; i < n; ++i) items[size_t(i)] = Item(key_of(values[i]), i);
    std::nth_element(items.begin(), items.begin() + place, items.end());
    return items[size_t(place)];
  }
  int64_t counts[1 << kBits] = {};
  for (int64_t i = 0; i < n; ++i, poll()) ++counts[key_of(values[i]) >> kShift];
  size_t upper = 0;
  while (place >= counts[upper]) place -= counts[upper++];
  items.resize(size_t(counts[upper]) + 1);  // the last one is overwritten
  size_t found = 0;
  for (int64_t i = 0; i < n; ++i, poll()) {
    const Key key = key_of(values[i]);
    items[found] = Item(key, i);
    found += key >> kShift == upper;
  }
  std::nth_element(items.begin(), items.begin() + place, items.end() - 1, PolledOrder(less, poll));
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
