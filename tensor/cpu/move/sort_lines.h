// Sorts lines of values, or finds the first of them in their order.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "tensor/cpu/move/order.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {

// Sorts n items that are in the order of their positions: by one digit of the keys after the other, from the last one
// on, each time keeping the order of equal digits. The result is in `items` or in `spare`, as is returned.
template <class Item>
const Item* sort_by_digits(Item* items, Item* spare, int64_t n) {
  Poller poll;
  uint64_t varies = 0;
  for (int64_t i = 0; i < n; ++i, poll()) varies |= items[i].order() ^ items[0].order();
  while (varies != 0) {
    const int shift = std::countr_zero(varies) / 8 * 8;
    varies &= ~(uint64_t(255) << shift);
    int64_t starts[256] = {};
    for (int64_t i = 0; i < n; ++i, poll()) ++starts[items[i].order() >> shift & 255];
    std::exclusive_scan(starts, starts + 256, starts, int64_t(0));
    for (int64_t i = 0; i < n; ++i, poll()) spare[starts[items[i].order() >> shift & 255]++] = items[i];
    std::swap(items, spare);
  }
  return items;
}

inline constexpr int64_t kLongLine = 32 << 10;  // items that threads share
inline constexpr int64_t kSortGrain = 2 << 10;  // items whose sort takes about 10 µs

// The same for a long line, on all threads. Items are first put into buckets by the highest bits that vary, each thread
// writing those of its part of the line; then buckets are sorted. The result is in `items`.
template <class Item>
void sort_long_line(Item* items, Item* spare, int64_t n) {
  constexpr int kBits = 10;
  constexpr int64_t kBuckets = 1 << kBits;
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(num_threads(), n / kSortGrain));
  const auto part = [=](int64_t p) { return n / parts * p + std::min(p, n % parts); };
  const auto in_parts = [&](const auto& f) {
    parallel_parts(parts, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        in_polled_blocks(part(p + 1) - part(p), 64 << 10,
                         [&](int64_t from, int64_t to) { f(p, part(p) + from, part(p) + to); });
    });
  };
  std::atomic<uint64_t> varies{0};
  in_parts([&](int64_t, int64_t begin, int64_t end) {
    uint64_t own = 0;
    for (int64_t i = begin; i < end; ++i) own |= items[i].order() ^ items[0].order();
    varies |= own;
  });
  const int top = std::bit_width(varies.load()), shift = std::max(top - kBits, 0);
  const auto bucket_of = [=](const Item& item) { return item.order() >> shift & (kBuckets - 1); };
  WorkVector<int64_t> places(size_t(parts * kBuckets), 0);  // where a part writes its next item of a bucket
  in_parts([&](int64_t p, int64_t begin, int64_t end) {
    int64_t* const counts = &places[size_t(p * kBuckets)];
    for (int64_t i = begin; i < end; ++i) ++counts[bucket_of(items[i])];
  });
  int64_t starts[kBuckets + 1], at = 0;
  for (int64_t b = 0; b < kBuckets; ++b) {
    starts[b] = at;
    for (int64_t p = 0; p < parts; ++p) at += std::exchange(places[size_t(p * kBuckets + b)], at);
  }
  starts[kBuckets] = n;
  in_parts([&](int64_t p, int64_t begin, int64_t end) {
    int64_t* const to = &places[size_t(p * kBuckets)];
    for (int64_t i = begin; i < end; ++i) spare[to[bucket_of(items[i])]++] = items[i];
  });
  parallel_for(n, kSortGrain, [&](int64_t begin, int64_t end) {  // the buckets that start there
    for (int64_t b = std::lower_bound(starts, starts + kBuckets, begin) - starts; b < kBuckets && starts[b] < end;
         ++b) {
      Item *const from = spare + starts[b], *const to = items + starts[b];
      const int64_t count = starts[b + 1] - starts[b];
      if (count < 128) {
        std::sort(from, from + count);
        std::copy_n(from, count, to);
      } else if (sort_by_digits(from, to, count) == from) {
        std::copy_n(from, count, to);
      }
    }
  });
}

// Sorts n items that are in the order of their positions. The result is in `items` or in `spare`, as is returned.
template <class Item>
const Item* sort_items(Item* items, Item* spare, int64_t n) {
  if (n >= kLongLine) return sort_long_line(items, spare, n), items;
  if (n >= 128) return sort_by_digits(items, spare, n);
  std::sort(items, items + n);  // counting digits would cost more
  return items;
}

// Whether one of the values may come before `limit`. No NaN shows that it does not.
template <size_t count, class T>
bool any_before(const T* values, T limit, bool descending) {
  if constexpr (!std::is_arithmetic_v<T>) return true;
  int found = 0;
  if (descending)
    for (size_t i = 0; i < count; ++i) found |= !(values[i] <= limit);
  else
    for (size_t i = 0; i < count; ++i) found |= !(values[i] >= limit);
  return found != 0;
}

inline constexpr int64_t kSelectBlock = 16;

// Calls f(begin, end) for the blocks of n values that may have one before `limit()`, a pointer that is null while all
// do.
template <class T, class Limit, class F>
void over_candidates(const T* values, int64_t n, bool descending, const Limit& limit, const F& f) {
  Poller poll;
  for (int64_t at = 0; at < n; at += kSelectBlock) {
    poll(kSelectBlock);
    const int64_t end = std::min(n, at + kSelectBlock);
    const T* const last = limit();
    if (last && end - at == kSelectBlock && !any_before<kSelectBlock>(values + at, *last, descending)) continue;
    f(at, end);
  }
}

template <class Item, class T>
Item item_of(const T* values, int64_t i, bool descending) {
  const auto key = key_of(values[i]);
  return Item(descending ? decltype(key)(~key) : key, i);
}

// Sets `items` to the first `keep` of n sorted values, by putting each into its place among the first so far.
template <class Item, class T>
void select_few(const T* values, int64_t n, bool descending, int64_t keep, Item* items) {
  int64_t count = 0;
  const auto limit = [&] { return count < keep ? nullptr : values + items[keep - 1].position(); };
  over_candidates(values, n, descending, limit, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Item item = item_of<Item>(values, i, descending);
      if (count == keep && !(item < items[keep - 1])) continue;
      int64_t at = count < keep ? count++ : keep - 1;
      for (; at > 0 && item < items[at - 1]; --at) items[at] = items[at - 1];
      items[at] = item;
    }
  });
}

// Sets `items` to the first `keep` of n sorted values, by choosing those that come before the last of the first `keep`
// so far. Few blocks of values have one when `keep` is small.
template <class Item, class T>
void select_line(const T* values, int64_t n, bool descending, int64_t keep, WorkVector<Item>& items) {
  Poller poll;
  const std::less<Item> less;
  const PolledOrder order(less, poll);
  const int64_t most = 2 * keep + kSelectBlock;
  const auto drop_others = [&] {
    std::nth_element(items.begin(), items.begin() + (keep - 1), items.end(), order);
    items.resize(size_t(keep));
  };
  items.clear();
  items.reserve(size_t(most + kSelectBlock));
  std::optional<Item> last;
  const auto limit = [&] { return last ? values + last->position() : nullptr; };
  over_candidates(values, n, descending, limit, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Item item = item_of<Item>(values, i, descending);
      if (!last || item < *last) items.push_back(item);
    }
    if (int64_t(items.size()) < most) return;
    drop_others();
    last = items.back();
  });
  if (int64_t(items.size()) > keep) drop_others();
  std::sort(items.begin(), items.end(), order);
}

// Sorts one line of n values after another.
template <class Item>
class LineSorter {
 public:
  LineSorter(int64_t n, int64_t keep)
      : n_(n),
        keep_(keep),
        few_(keep <= kFew && keep <= n / 2),
        selects_(keep < n / 16),
        memory_(few_       ? keep
                : selects_ ? 0
                           : times(2, n)) {}

  // The first `keep` items of the sorted values, valid until the next call.
  template <class T>
  const Item* sort(const T* values, bool descending) {
    Item* items = memory_;
    if (const int64_t parts = std::min<int64_t>(num_threads(), n_ / kLongLine);
        (few_ || selects_) && parts > 1 && keep_ <= kLongLine) {
      select_in_parts(values, descending, parts);
      return selected_.data();
    }
    if (few_) {
      select_few(values, n_, descending, keep_, items);
      return items;
    }
    if (selects_) {
      select_line(values, n_, descending, keep_, selected_);
      return selected_.data();
    }
    parallel_for(n_, kLongLine / 4, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) items[i] = item_of<Item>(values, i, descending);
    });
    if (n_ >= 128 || keep_ == n_) return sort_items(items, items + n_, n_);
    std::nth_element(items, items + keep_, items + n_);
    std::sort(items, items + keep_);
    return items;
  }

 private:
  // The first items of the line are among the first of its parts.
  template <class T>
  void select_in_parts(const T* values, bool descending, int64_t parts) {
    selected_.resize(size_t(parts * keep_));
    parallel_parts(parts, [&](int64_t first, int64_t last) {
      WorkVector<Item> found;
      for (int64_t p = first; p < last; ++p) {
        const int64_t begin = n_ * p / parts, count = n_ * (p + 1) / parts - begin;
        found.resize(size_t(keep_));
        few_ ? select_few(values + begin, count, descending, keep_, found.data())
             : select_line(values + begin, count, descending, keep_, found);
        for (int64_t k = 0; k < keep_; ++k)
          selected_[size_t(p * keep_ + k)] = item_of<Item>(values, begin + found[size_t(k)].position(), descending);
      }
    });
    Poller poll;
    const std::less<Item> less;
    std::partial_sort(selected_.begin(), selected_.begin() + keep_, selected_.end(), PolledOrder(less, poll));
  }

  static constexpr int64_t kFew = 16;  // more take longer to put into their places
  const int64_t n_, keep_;
  const bool few_, selects_;
  const Scratch<Item> memory_;
  WorkVector<Item> selected_;
};

}  // namespace pg::cpu
