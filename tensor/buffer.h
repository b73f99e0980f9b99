// Reference counted memory of tensors, and the caching allocator behind it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/device.h"
#include "tensor/refcount.h"
#include "tensor/size.h"

namespace pg {

// A block of device memory; `data` is 64-byte aligned. Contents are shared and immutable except to the
// one holder of a unique reference.
class Buffer : public RefCounted<Buffer> {
 public:
  // Throws OutOfMemory. Zero bytes give a valid, empty buffer.
  static Ref<Buffer> allocate(Device device, Bytes bytes);
  static void destroy(Buffer* buffer);

  void* data = nullptr;
  size_t bytes = 0;
  Device device;

 private:
  friend struct BufferAccess;
  Buffer() = default;
  size_t capacity_ = 0;
};

struct MemoryStats {
  int64_t live = 0;    // bytes in buffers that somebody holds
  int64_t cached = 0;  // bytes kept for reuse
  int64_t peak = 0;    // largest live so far
  int64_t allocations = 0;
};
MemoryStats memory_stats();
void reset_peak();

// Gives cached memory back to the system.
void flush_memory_cache();

// Called once before an allocation is given up, outside of any lock; answers whether to try again.
using OutOfMemoryHandler = bool (*)(void* context, size_t bytes);
struct ScopedOutOfMemoryHandler {
  ScopedOutOfMemoryHandler(OutOfMemoryHandler handler, void* context);
  ~ScopedOutOfMemoryHandler();

 private:
  OutOfMemoryHandler saved_handler_;
  void* saved_context_;
};

// For tests: the n-th allocation from here on fails (1 = the next) whatever the out-of-memory handler does, and
// with `persistent` all later ones too; 0 switches it off. Applies to every request for tensor memory of the calling
// thread.
void fail_allocation(int64_t nth, bool persistent = false);
// True when the failure asked for has happened.
bool allocation_failed();

}  // namespace pg
