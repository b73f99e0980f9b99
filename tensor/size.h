// Sizes: all products and sums of element and byte counts are computed here. They saturate at limits that no tensor and
// no memory reaches, so an overflow never looks like a small size. checked_numel then refuses the number of elements,
// Buffer::allocate the number of bytes.
#pragma once
#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace pg {

// The maximum for the elements of a tensor, for a dim and for an attribute that is a whole number.
inline constexpr int64_t kMaxElements = int64_t(1) << 56;

// a * b and a + b, saturated at -2^62 and 2^62.
inline constexpr int64_t kMostSize = int64_t(1) << 62;
constexpr int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return (a < 0) == (b < 0) ? kMostSize : -kMostSize;
  return std::clamp(product, -kMostSize, kMostSize);
}
constexpr int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return a < 0 ? -kMostSize : kMostSize;
  return std::clamp(sum, -kMostSize, kMostSize);
}

// A number of bytes, saturated at 2^62.
class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(uint64_t count) : count_(std::min(count, uint64_t(kMostSize))) {}
  // Returns the bytes of `count` objects of `size` bytes each. A negative count is an overflow: it returns the maximum.
  static constexpr Bytes of(int64_t count, uint64_t size) {
    return count < 0 ? Bytes(~uint64_t(0))
                     : Bytes(uint64_t(times(count, int64_t(std::min(size, uint64_t(kMostSize))))));
  }

  constexpr size_t count() const { return count_; }
  constexpr Bytes aligned(uint64_t to) const { return Bytes((count_ + to - 1) / to * to); }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator*(int64_t n, Bytes each) { return of(n, each.count_); }
  constexpr Bytes& operator+=(Bytes b) { return *this = *this + b; }
  constexpr auto operator<=>(const Bytes&) const = default;

 private:
  uint64_t count_ = 0;
};

}  // namespace pg
