#include "tests/vm/allocations.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace pg::test {
constinit thread_local Countdown cpp_allocations;
}
using pg::test::cpp_allocations;

#ifndef PERIGEE_SANITIZED
__attribute__((noinline)) void* operator new(size_t size) {
  void* block = cpp_allocations.fails() ? nullptr : std::malloc(size ? size : 1);
  if (!block) throw std::bad_alloc();
  return block;
}
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return cpp_allocations.fails() ? nullptr : std::malloc(size ? size : 1);
}
__attribute__((noinline)) void* operator new(size_t size, std::align_val_t alignment) {
  void* block = nullptr;
  if (cpp_allocations.fails() || posix_memalign(&block, std::max(size_t(alignment), sizeof(void*)), size))
    throw std::bad_alloc();
  return block;
}
__attribute__((noinline)) void operator delete(void* block) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, size_t) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, size_t, std::align_val_t) noexcept { std::free(block); }
#endif
