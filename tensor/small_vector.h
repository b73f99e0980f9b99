// A vector that stores its first N elements inside the object.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace pg {

template <class T, size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(size_t count) {
    reserve(count);
    while (size_ < count) emplace_back();
  }
  SmallVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& v : values) push_back(v);
  }
  explicit SmallVector(std::span<const T> values) {
    reserve(values.size());
    for (const T& v : values) push_back(v);
  }
  SmallVector(const SmallVector& other) : SmallVector(std::span<const T>(other.data(), other.size())) {}
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector other) noexcept {
    clear_storage();
    take(other);
    return *this;
  }
  ~SmallVector() { clear_storage(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  operator std::span<const T>() const { return {data_, size_}; }
  operator std::span<T>() { return {data_, size_}; }

  void push_back(T value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) reserve(capacity_ * 2);
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void pop_back() { data_[--size_].~T(); }
  void clear() {
    while (size_) pop_back();
  }
  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    T* bigger = static_cast<T*>(::operator new(capacity * sizeof(T), std::align_val_t(alignof(T))));
    for (size_t i = 0; i < size_; ++i) {
      new (bigger + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    free_heap();
    data_ = bigger;
    capacity_ = capacity;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(storage_); }
  void free_heap() {
    if (data_ != inline_data()) ::operator delete(data_, std::align_val_t(alignof(T)));
  }
  void clear_storage() {
    clear();
    free_heap();
    data_ = inline_data();
    capacity_ = N;
  }
  void take(SmallVector& other) noexcept {
    if (other.data_ != other.inline_data()) {
      data_ = std::exchange(other.data_, other.inline_data());
      capacity_ = std::exchange(other.capacity_, N);
      size_ = std::exchange(other.size_, 0);
      return;
    }
    for (T& v : other) emplace_back(std::move(v));
    other.clear();
  }

  alignas(T) unsigned char storage_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace pg
