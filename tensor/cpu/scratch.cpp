#include "tensor/cpu/scratch.h"
#include "tensor/thread_end.h"

#include <algorithm>
#include <new>

namespace pg::cpu {
namespace {

constexpr size_t kAlign = 64;

// One block. A use of the stack, from empty to empty, may need more than the block has; what does not fit is allocated
// for its scope, and the next use has a larger block. Scopes nest a few levels deep, so a block has a few MiB at most.
// Trivial, so that a kernel may still use it in a handler of exit(), after the thread's destructors have run.
struct Stack {
  char* block;
  size_t size, used;
  size_t live, most;  // bytes of this use, with those outside of the block

  void begin_use(size_t bytes) {
    bytes = std::max(bytes, most);
    most = 0;
    if (bytes <= size || !kKeepsScratch) return;
    release();
    block = static_cast<char*>(::operator new(bytes, std::align_val_t(kAlign), std::nothrow));
    if (block) size = bytes;
  }

  void release() {
    ::operator delete(block, std::align_val_t(kAlign));
    block = nullptr;
    size = 0;
  }
};

thread_local Stack tls_stack;

}  // namespace

ScratchBytes::ScratchBytes(Bytes bytes) : size_((bytes.count() + kAlign - 1) / kAlign * kAlign) {
  if (size_ == 0) return;
  if (size_ >= kCountedScratch) {
    buffer_ = Buffer::allocate({}, Bytes(size_));
    data_ = static_cast<char*>(buffer_->data);
    return;
  }
  Stack& stack = tls_stack;
  if (stack.live == 0) {
    if (!stack.block) at_thread_end([] { tls_stack.release(); });
    stack.begin_use(size_);
  }
  own_ = stack.used + size_ > stack.size;
  data_ = own_ ? static_cast<char*>(::operator new(size_, std::align_val_t(kAlign))) : stack.block + stack.used;
  if (!own_) stack.used += size_;
  stack.live += size_;
  stack.most = std::max(stack.most, stack.live);
}

ScratchBytes::~ScratchBytes() {
  if (size_ == 0 || buffer_) return;
  Stack& stack = tls_stack;
  if (own_)
    ::operator delete(data_, std::align_val_t(kAlign));
  else
    stack.used -= size_;
  stack.live -= size_;
}

void* allocate_counted(Bytes bytes) {
  const Ref<Buffer> buffer = Buffer::allocate({}, bytes + Bytes(kAlign));
  buffer->retain();
  char* const block = static_cast<char*>(buffer->data);
  new (block) Buffer*(buffer.get());
  return block + kAlign;
}

void release_counted(void* data) { (*reinterpret_cast<Buffer**>(static_cast<char*>(data) - kAlign))->release(); }

}  // namespace pg::cpu
