// Dims: a short list of int64 that is stored inline. For shapes, strides and lists of dims.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tensor/size.h"

namespace pg {

inline constexpr int kMaxRank = 12;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) {
    for (int64_t v : values) push_back(v);
  }
  explicit Dims(std::span<const int64_t> values) {
    for (int64_t v : values) push_back(v);
  }
  Dims(int count, int64_t value) {
    for (int i = 0; i < count; ++i) push_back(value);
  }
  Dims(const Dims& other) { *this = other; }
  Dims& operator=(const Dims& other) {  // copies only the values in use
    size_ = other.size_;
    for (int i = 0; i < size_; ++i) values_[i] = other.values_[i];
    return *this;
  }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](int i) { return values_[i]; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t* begin() { return values_; }
  int64_t* end() { return values_ + size_; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + size_; }
  int64_t back() const { return values_[size_ - 1]; }
  void push_back(int64_t v);  // throws Error beyond kMaxRank
  void pop_back() { --size_; }
  void insert(int at, int64_t v);
  void erase(int at);
  bool operator==(const Dims& other) const;

 private:
  int size_ = 0;
  int64_t values_[kMaxRank];
};

// Returns the number of elements. Throws Error for a shape that no tensor can have; use checked_numel for an error that
// names the op.
int64_t numel(const Dims& shape);

// The same. Throws Error `op: …` for negative dims and for more than kMaxElements elements, where dims of 0 count as 1.
int64_t checked_numel(const char* op, const Dims& shape);

Dims contiguous_strides(const Dims& shape);
bool is_contiguous(const Dims& shape, const Dims& strides);

// Returns "2x3", or "scalar" for 0 dims.
std::string to_string(const Dims& shape);

// Sets `out` to the two shapes broadcast as in NumPy; returns false when they do not match.
bool broadcast(const Dims& a, const Dims& b, Dims* out);

// Returns the strides of an array of `shape` broadcast to `target`: 0 on broadcast dims.
Dims broadcast_strides(const Dims& shape, const Dims& strides, const Dims& target);

}  // namespace pg
