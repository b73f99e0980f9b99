// Working memory of the CPU kernels: a stack per thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/size.h"

namespace pg::cpu {

// Bytes that are valid until the end of the scope, aligned to 64, with unspecified contents; null for none. The memory
// is kept for the next kernel of the thread. Throws std::bad_alloc.
class ScratchBytes {
 public:
  explicit ScratchBytes(Bytes bytes);
  ~ScratchBytes();
  ScratchBytes(const ScratchBytes&) = delete;
  ScratchBytes& operator=(const ScratchBytes&) = delete;

  char* get() const { return data_; }

 private:
  size_t size_;
  char* data_ = nullptr;
  bool own_ = false;  // the stack had no room
};

// The same for `count` elements.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : bytes_(Bytes::of(count, sizeof(T))) {}
  T* get() const { return reinterpret_cast<T*>(bytes_.get()); }
  operator T*() const { return get(); }

 private:
  ScratchBytes bytes_;
};

}  // namespace pg::cpu
