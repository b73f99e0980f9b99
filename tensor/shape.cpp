#include "tensor/shape.h"

#include "tensor/error.h"

namespace pg {

void Dims::push_back(int64_t v) {
  if (size_ == kMaxRank) throw Error(fmt::format("a tensor has at most {} dims", kMaxRank));
  values_[size_++] = v;
}

void Dims::insert(int at, int64_t v) {
  push_back(v);
  for (int i = size_ - 1; i > at; --i) values_[i] = values_[i - 1];
  values_[at] = v;
}

void Dims::erase(int at) {
  for (int i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
  --size_;
}

bool Dims::operator==(const Dims& other) const {
  if (size_ != other.size_) return false;
  for (int i = 0; i < size_; ++i)
    if (values_[i] != other.values_[i]) return false;
  return true;
}

namespace {

// Returns -1 for an invalid shape. Dims beside a 0 are limited too, because strides are computed from them.
int64_t count_elements(const Dims& shape) {
  int64_t n = 1;
  bool zero = false;
  for (int64_t d : shape) {
    if (d < 0) return -1;
    zero |= d == 0;
    if (__builtin_mul_overflow(n, d ? d : 1, &n) || n > kMaxElements) return -1;
  }
  return zero ? 0 : n;
}

}  // namespace

int64_t numel(const Dims& shape) {
  const int64_t n = count_elements(shape);
  return n >= 0 ? n : checked_numel("tensor", shape);
}

int64_t checked_numel(const char* op, const Dims& shape) {
  const int64_t n = count_elements(shape);
  if (n >= 0) return n;
  for (int64_t d : shape)
    if (d < 0) bad_argument(op, "shape", "sizes that are not negative", to_string(shape));
  bad_argument(op, "shape", "at most 2^56 elements", to_string(shape) + ", too many elements");
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides = shape;
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step = times(step, shape[i] > 0 ? shape[i] : 1);
  }
  return strides;
}

bool is_contiguous(const Dims& shape, const Dims& strides) {
  int64_t step = 1;
  if (numel(shape) == 0) return true;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

std::string to_string(const Dims& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (int64_t d : shape) text += (text.empty() ? "" : "x") + std::to_string(d);
  return text;
}

bool broadcast(const Dims& a, const Dims& b, Dims* out) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  const int offset = longer.size() - shorter.size();
  *out = longer;
  for (int i = 0; i < shorter.size(); ++i) {
    const int64_t x = longer[i + offset], y = shorter[i];
    if (x != y && x != 1 && y != 1) return false;
    (*out)[i + offset] = x == 1 ? y : x;
  }
  return true;
}

Dims broadcast_strides(const Dims& shape, const Dims& strides, const Dims& target) {
  Dims out(target.size(), 0);
  const int offset = target.size() - shape.size();
  for (int i = 0; i < shape.size(); ++i) out[i + offset] = shape[i] == 1 ? 0 : strides[i];
  return out;
}

}  // namespace pg
