// Reference counted memory of tensors, and the caching allocator behind it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tensor/device.h"
#include "tensor/refcount.h"
#include "tensor/size.h"

namespace pg {

struct PackedForm;
class Runtime;

// A block of device memory; `data` is 64-byte aligned. Contents are shared and immutable except to the
// one holder of a unique reference.
class Buffer : public RefCounted<Buffer> {
 public:
  // Memory of the current runtime (tensor/runtime.h). Throws OutOfMemory. Zero bytes give a valid, empty buffer.
  static Ref<Buffer> allocate(Device device, Bytes bytes);
  // Memory of the host's on the CPU, which is never written. When the buffer is destroyed, release(user, data) is
  // called, if it is set. Throws OutOfMemory, and then calls nothing.
  static Ref<Buffer> borrow(void* data, Bytes bytes, void (*release)(void* user, void* data), void* user);
  static void destroy(Buffer* buffer);

  bool unique() const { return !borrowed && RefCounted::unique(); }
  // Whether the holder may rewrite the contents: nobody else sees them. What was made of them is dropped then.
  bool claim() {
    if (!unique()) return false;
    uses.store(0, std::memory_order_relaxed);
    if (packed.load(std::memory_order_relaxed)) drop_packed();
    return true;
  }
  Runtime& runtime() const { return *runtime_; }  // whose memory this is

  void* data = nullptr;
  size_t bytes = 0;
  Device device;
  bool borrowed = false;
  std::atomic<bool> counted{false};  // by the garbage collector that frees its first holder in a script
  // Of tensor/packed.h: calls that have read the contents as a weight since the last claim, and its packed forms.
  std::atomic<uint8_t> uses{0};
  std::atomic<PackedForm*> packed{nullptr};

 private:
  friend struct BufferAccess;
  Buffer() = default;
  void drop_packed();
  size_t capacity_ = 0;
  Runtime* runtime_ = nullptr;  // whose memory this is; kept alive
};

// For tests: the n-th allocation from now on (1: the next) fails. With `persistent` all later ones fail too. 0 switches
// this off. Applies to the tensor memory that the calling thread allocates.
void fail_allocation(int64_t nth, bool persistent = false);
// Whether the requested failure has happened.
bool allocation_failed();
// For tests: allocations of the calling thread above this many bytes fail as if memory had run out. 0 removes the
// limit.
void limit_allocation(size_t bytes);

}  // namespace pg
