// Working memory of the CPU kernels: a stack per thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/size.h"

namespace pg::cpu {

#if defined(__SANITIZE_ADDRESS__)
#define PERIGEE_KEEPS_SCRATCH false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PERIGEE_KEEPS_SCRATCH false
#endif
#endif
#ifndef PERIGEE_KEEPS_SCRATCH
#define PERIGEE_KEEPS_SCRATCH true
#endif

// Whether a thread keeps a block. Memory of its own for each scope lets AddressSanitizer find what is written past the
// end or used too late.
constexpr bool kKeepsScratch = PERIGEE_KEEPS_SCRATCH;

// Bytes that are valid until the end of the scope, aligned to 64, with unspecified contents; null for none. The scopes
// of a thread end on that thread, the last one first. Throws std::bad_alloc.
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
  operator T*() const& { return get(); }
  operator T*() const&& = delete;

 private:
  ScratchBytes bytes_;
};

}  // namespace pg::cpu
