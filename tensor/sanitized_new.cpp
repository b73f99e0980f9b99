// AddressSanitizer ends the process where operator new has no memory. In builds with it the linker replaces the calls
// of operator new by these, which throw std::bad_alloc as in any other build.
#include <cstddef>
#include <new>

namespace {

constexpr size_t kLargest = size_t(4096) << 20;  // max_allocation_size_mb in scripts/sanitized

}  // namespace

// The names are those of the C++ ABI of 64-bit systems: operator new(size_t), and the same with an alignment.
extern "C" {
void* __real__Znwm(size_t size);
void* __real__ZnwmSt11align_val_t(size_t size, std::align_val_t alignment);

void* __wrap__Znwm(size_t size) {
  if (size > kLargest) throw std::bad_alloc();
  return __real__Znwm(size);
}
void* __wrap__ZnwmSt11align_val_t(size_t size, std::align_val_t alignment) {
  if (size > kLargest) throw std::bad_alloc();
  return __real__ZnwmSt11align_val_t(size, alignment);
}
}
