// Working memory of the CPU kernels: a stack per thread for small pieces, tensor memory for large ones. What grows with
// the operands of an op is taken from here, so that a memory limit holds for it too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "tensor/buffer.h"
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

// Pieces from this size on are buffers: counted in the account of the thread, and from the allocator of the runtime.
constexpr size_t kCountedScratch = size_t(1) << 20;

// Bytes that are valid until the end of the scope, aligned to 64, with unspecified contents; null for none. The scopes
// of a thread end on that thread, the last one first. Throws OutOfMemory, or std::bad_alloc for small pieces.
class ScratchBytes {
 public:
  explicit ScratchBytes(Bytes bytes);
  ~ScratchBytes();
  ScratchBytes(const ScratchBytes&) = delete;
  ScratchBytes& operator=(const ScratchBytes&) = delete;

  char* get() const { return data_; }

 private:
  size_t size_;
  Ref<Buffer> buffer_;  // of a large piece
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

// Memory of a buffer, to be released on any thread. Throws OutOfMemory.
void* allocate_counted(Bytes bytes);
void release_counted(void* data);

// The allocator of WorkVector: like the scratch memory above, but without an order of the scopes. Here smaller pieces
// are buffers too: malloc would take their pages from the system and return them each time.
constexpr size_t kPooledWork = size_t(64) << 10;
template <class T>
struct WorkAllocator {
  using value_type = T;
  WorkAllocator() = default;
  template <class U>
  WorkAllocator(const WorkAllocator<U>&) {}
  bool operator==(const WorkAllocator&) const { return true; }

  T* allocate(size_t n) {
    const Bytes bytes = Bytes::of(int64_t(n), sizeof(T));
    if (bytes.count() < kPooledWork) return static_cast<T*>(::operator new(bytes.count()));
    return static_cast<T*>(allocate_counted(bytes));
  }
  template <class U>
  void construct(U* at) {  // resize(n) leaves numbers as they are: to zero many takes long, without a poll
    ::new (static_cast<void*>(at)) U;
  }
  void deallocate(T* data, size_t n) {
    if (n * sizeof(T) < kPooledWork)
      ::operator delete(data);
    else
      release_counted(data);
  }
};

// A vector for elements whose number grows with the operands of an op. Elements that are numbers and have no value
// given are unspecified.
template <class T>
using WorkVector = std::vector<T, WorkAllocator<T>>;

}  // namespace pg::cpu
