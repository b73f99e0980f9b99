// Reference counted memory of tensors, and the caching allocator behind it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/device.h"
#include "tensor/refcount.h"
#include "tensor/size.h"

namespace pg {

class Runtime;

// A block of device memory; `data` is 64-byte aligned. Contents are shared and immutable except to the
// one holder of a unique reference.
class Buffer : public RefCounted<Buffer> {
 public:
  // Memory of the current runtime (tensor/runtime.h). Throws OutOfMemory. Zero bytes give a valid, empty buffer.
  static Ref<Buffer> allocate(Device device, Bytes bytes);
  static void destroy(Buffer* buffer);

  void* data = nullptr;
  size_t bytes = 0;
  Device device;

 private:
  friend struct BufferAccess;
  Buffer() = default;
  size_t capacity_ = 0;
  Runtime* runtime_ = nullptr;  // whose memory this is; kept alive
};

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
// For tests: requests of the calling thread for more than this many bytes fail as if there were no memory; 0 lifts the
// limit.
void limit_allocation(size_t bytes);

}  // namespace pg
