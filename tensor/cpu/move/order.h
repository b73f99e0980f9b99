// The order of values: unsigned keys of the same order, so that one integer comparison also handles ties and NaN.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/scratch.h"
#include "tensor/kernel.h"
#include "tensor/parallel.h"

namespace pg::cpu {

// In keys -0 equals 0, and NaN is larger than everything.
inline uint32_t key_of(float v) {
  if (std::isnan(v)) return ~0u;
  const uint32_t bits = std::bit_cast<uint32_t>(v == 0 ? 0.0f : v);
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);  // without a branch
}
inline uint64_t key_of(double v) {
  if (std::isnan(v)) return ~uint64_t(0);
  const uint64_t bits = std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
  return bits ^ (uint64_t(int64_t(bits) >> 63) | uint64_t(1) << 63);
}
// The same from the bits of a half, of which those above `infinity` are NaN, in the upper bits of the key.
inline uint32_t key_of_half(uint32_t bits, uint32_t infinity) {
  const uint32_t size = bits & 0x7fff, sign = -(bits >> 15);
  const uint32_t key = size == 0 ? 0x8000 : bits ^ (sign | 0x8000);
  return (size > infinity ? 0xffff : key) << 16;
}
inline uint32_t key_of(Half v) { return key_of_half(v.bits, 0x7c00); }
inline uint32_t key_of(BFloat16 v) { return key_of_half(v.bits, 0x7f80); }
inline uint32_t key_of(bool v) { return v; }
inline uint32_t key_of(uint8_t v) { return v; }
inline uint32_t key_of(int8_t v) { return uint32_t(int32_t(v)) ^ 0x80000000u; }
inline uint32_t key_of(int32_t v) { return uint32_t(v) ^ 0x80000000u; }
inline uint64_t key_of(int64_t v) { return uint64_t(v) ^ (uint64_t(1) << 63); }

// An element to sort: by its key, then by its position. Short keys share one word with the position.
struct Packed {
  uint64_t word;
  Packed() = default;
  Packed(uint32_t key, int64_t position) : word(uint64_t(key) << 32 | uint64_t(position)) {}
  uint64_t order() const { return word >> 32; }
  int64_t position() const { return int64_t(word & 0xffffffffu); }
  bool operator<(const Packed& o) const { return word < o.word; }
};
struct Wide {
  uint64_t key;
  int64_t at;
  Wide() = default;
  Wide(uint64_t k, int64_t position) : key(k), at(position) {}
  uint64_t order() const { return key; }
  int64_t position() const { return at; }
  bool operator<(const Wide& o) const { return key != o.key ? key < o.key : at < o.at; }
};

// A comparison that polls, so that a sort with it can be interrupted.
template <class Less>
class PolledOrder {
 public:
  PolledOrder(const Less& less, Poller& poller) : less_(less), poller_(poller) {}
  template <class V>
  bool operator()(const V& a, const V& b) const {
    poller_();
    return less_(a, b);
  }

 private:
  const Less& less_;
  Poller& poller_;
};

// Calls f(TypeTag<Item>{}) for the items of n values.
template <class T, class F>
void visit_item(int64_t n, F&& f) {
  if constexpr (sizeof(key_of(T())) == 4)
    if (n <= int64_t(0xffffffff)) return f(TypeTag<Packed>{});
  f(TypeTag<Wide>{});
}

// Calls f(TypeTag<T>{}, TypeTag<Item>{}) for the dtype and the size of x.
template <class F>
void visit_items(const View& x, F&& f) {
  visit_dtype(x.dtype(),
              [&](auto tag) { visit_item<typename decltype(tag)::type>(x.numel(), [&](auto item) { f(tag, item); }); });
}

// Reads one line after another: where it is, or a copy without gaps.
template <class T>
class LineBuffer {
 public:
  explicit LineBuffer(const Lines& lines) : lines_(lines), copy_(lines.inner > 1 ? lines.n : 0) {}
  const T* read(const T* x, int64_t line) {
    const int64_t n = lines_.n, inner = lines_.inner;
    const T* from = x + line / inner * n * inner + line % inner;
    if (inner == 1) return from;
    for (int64_t i = 0; i < n; ++i, poll_()) copy_[i] = from[i * inner];
    return copy_;
  }

 private:
  const Lines& lines_;
  const Scratch<T> copy_;
  Poller poll_;
};

}  // namespace pg::cpu
