// Intrusive reference counts. They are atomic, so that threads may share values.
#pragma once
#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace pg {

// The base of shared objects. T must have `static void destroy(T*)`, which is called when the last reference is
// released. Counting uses no atomic instructions until the process starts a second thread (glibc's
// __libc_single_threaded): they are a third of the cost of a small op.
template <class T>
class RefCounted {
 public:
  void retain() const {
    if (__libc_single_threaded)
      count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    else
      count_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() const {
    const uint32_t count = count_.load(std::memory_order_acquire);
    if (count == 1) return T::destroy(const_cast<T*>(static_cast<const T*>(this)));
    if (__libc_single_threaded)
      count_.store(count - 1, std::memory_order_relaxed);
    else if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      T::destroy(const_cast<T*>(static_cast<const T*>(this)));
  }
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  bool unique() const { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace pg
