// Dims: a short list of int64 stored inline. Used for shapes, strides and lists of dims.
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
  Dims& operator=(const Dims& other) {  // copies only what is used
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

// The number of elements. Throws Error for a shape that no tensor has: checked_numel says of which op.
int64_t numel(const Dims& shape);

// The same; throws Error `op: …` for negative dims and more than kMaxElements elements, dims of 0 left out.
int64_t checked_numel(const char* op, const Dims& shape);

Dims contiguous_strides(const Dims& shape);
bool is_contiguous(const Dims& shape, const Dims& strides);

// "2x3", "scalar" for 0-dim.
std::string to_string(const Dims& shape);

// NumPy broadcasting of two shapes into out; false when they do not fit.
bool broadcast(const Dims& a, const Dims& b, Dims* out);

// The strides of an array of `shape` seen as the broader `target` (0 on broadcast dims).
Dims broadcast_strides(const Dims& shape, const Dims& strides, const Dims& target);

}  // namespace pg
