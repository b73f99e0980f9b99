#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/sum_rows_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "tensor/cpu/move/sum_rows_simd.h"

#include <algorithm>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/row_sums.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kCost = 150;   // picoseconds an element
constexpr int64_t kPiece = 256;  // pairs that are summed one after the other

// The pairs of a row of x and the row of out that it is added to. Those with a place outside are skipped.
template <class T>
struct Pairs {
  const T* x;
  int64_t rows, columns, count;
  const int64_t *from, *to;
  const T* factors;  // null: all are 1
};

// Sets kVectors vectors of `sum`, of which `left` elements are used, to the sums of the pairs [begin, end), by columns.
template <int kVectors, class T>
HWY_INLINE void sum_vectors(const Pairs<T>& p, int64_t begin, int64_t end, int64_t column, int64_t left, T* sum) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const bool part = left < kVectors * lanes;  // then there is one vector
  hn::Vec<decltype(d)> sums[kVectors];
  PERIGEE_UNROLL
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t j = begin; j < end; ++j) {
    if (uint64_t(p.from[j]) >= uint64_t(p.rows)) continue;
    const T* const row = p.x + p.from[j] * p.columns + column;
    const auto factor = hn::Set(d, p.factors ? p.factors[j] : T(1));
    PERIGEE_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums[v] = hn::Add(sums[v], hn::Mul(factor, part ? load_part(d, row, left) : hn::LoadU(d, row + v * lanes)));
  }
  PERIGEE_UNROLL
  for (int v = 0; v < kVectors; ++v) part ? store_part(d, sums[v], sum, left) : hn::StoreU(sums[v], d, sum + v * lanes);
}

template <class T>
void sum_pairs(const Pairs<T>& p, int64_t begin, int64_t end, T* sum) {
  constexpr int kVectors = 8;
  const int64_t lanes = int64_t(hn::Lanes(hn::ScalableTag<T>()));
  for (int64_t c = 0; c < p.columns;) {
    const int64_t left = p.columns - c;
    const bool wide = left >= kVectors * lanes;
    (wide ? sum_vectors<kVectors, T> : sum_vectors<1, T>)(p, begin, end, c, left, sum + c);
    c += wide ? kVectors * lanes : lanes;
  }
}

template <class T>
void add_row(const T* from, T factor, int64_t n, T* to) {
  PERIGEE_INDEPENDENT
  for (int64_t c = 0; c < n; ++c) to[c] += factor * from[c];
}

// Where `to` is in order, the rows of a group of equal places are summed in pieces of fixed size, whatever the threads.
// The sums of all pieces of a group but the first are added to it in the end.
template <class T>
void sum_groups(const Pairs<T>& p, bool has_others, int64_t size, T* out) {
  const int64_t* const end_of_pairs = p.to + p.count;
  const Scratch<T> others(has_others ? times(p.count / kPiece + 1, p.columns) : 0);
  const auto other = [&](int64_t at) { return others.get() + at / kPiece * p.columns; };  // apart by a piece or more
  const auto group_of = [&](int64_t at) {
    const auto [first, last] = std::equal_range(p.to, end_of_pairs, p.to[at]);
    return std::pair(first - p.to, last - p.to);
  };
  const int64_t bytes = int64_t(2 * sizeof(int64_t)) + size * p.columns * int64_t(sizeof(T)) / p.count;  // of a pair
  parallel_for(p.count, shared_grain(bytes, kCost * p.columns), [&](int64_t begin, int64_t end) {
    auto [first, last] = group_of(begin);
    int64_t at = first + (begin - first + kPiece - 1) / kPiece * kPiece;  // of the first piece that starts here
    for (at = std::min(at, int64_t(last)); at < end;) {
      const int64_t place = p.to[at];
      if (at == last) first = at;
      while (last <= at || (last < p.count && p.to[last] == place)) ++last;
      const int64_t stop = std::min<int64_t>(at + kPiece, last);
      if (uint64_t(place) < uint64_t(size)) sum_pairs(p, at, stop, at == first ? out + place * p.columns : other(at));
      at = stop;
    }
  });
  if (!has_others) return;
  Poller poll;
  for (int64_t first = 0, at = 0; at < p.count; ++at, poll()) {
    const int64_t place = p.to[at];
    if (place != p.to[first]) first = at;
    if (at == first || (at - first) % kPiece != 0 || uint64_t(place) >= uint64_t(size)) continue;
    add_row(other(at), T(1), p.columns, out + place * p.columns);
    poll(p.columns);
  }
}

// In any order: threads take rows of the result.
template <class T>
void sum_scattered(const Pairs<T>& p, int64_t size, T* out) {
  const int64_t work = p.count * (p.columns + 1) / size + 1;
  share_rows(size, shared_grain(p.columns * int64_t(sizeof(T)), kCost * work), [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t j = 0; j < p.count; ++j) {
      poll();
      if (p.to[j] < begin || p.to[j] >= end || uint64_t(p.from[j]) >= uint64_t(p.rows)) continue;
      add_row(p.x + p.from[j] * p.columns, p.factors ? p.factors[j] : T(1), p.columns, out + p.to[j] * p.columns);
      poll(p.columns);
    }
  });
}

template <class T>
void sum_rows_typed(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const Pairs<T> p{x.as<T>(),
                   x.size(0),
                   x.size(1),
                   a.in[1].numel(),
                   a.in[1].as<int64_t>(),
                   a.in[2].as<int64_t>(),
                   a.in[3] ? a.in[3].as<T>() : nullptr};
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  if (p.count == 0 || out.numel() == 0) return;
  bool in_order = true, has_others = false;
  in_polled_blocks(p.count - 1, 1 << 16, [&](int64_t begin, int64_t end) {
    bool ordered = true;
    for (int64_t j = begin; j < end; ++j) ordered &= p.to[j] <= p.to[j + 1];
    in_order &= ordered;
  });
  if (!in_order) return sum_scattered(p, out.size(0), out.as<T>());
  constexpr int64_t kStep = kPiece / 2;  // a group of more than a piece has two places so far apart
  for (int64_t j = kStep; j < p.count && !has_others; j += kStep) has_others = p.to[j] == p.to[j - kStep];
  sum_groups(p, has_others, out.size(0), out.as<T>());
}

}  // namespace

void sum_rows_kernel(const KernelArgs& a) {
  a.in[0].dtype() == DType::kFloat64 ? sum_rows_typed<double>(a) : sum_rows_typed<float>(a);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(sum_rows_kernel);
void sum_rows(const KernelArgs& a) { HWY_DYNAMIC_DISPATCH(sum_rows_kernel)(a); }
}  // namespace pg::cpu
#endif
