#include "tensor/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tensor/device_table.h"
#include "tensor/error.h"
#include "tensor/memory_account.h"
#include "tensor/poison.h"
#include "tensor/runtime.h"
#include "tensor/settings.h"

namespace pg {

constexpr size_t kHeader = 64, kGuard = 64;

// On the CPU the header and the data are one block, so that a tiny tensor costs one allocation. On other devices the
// header is a separate block. The header ends with the account in which the buffer is counted, or null.
struct BufferAccess {
  static Buffer* construct(void* at) { return new (at) Buffer; }
  static MemoryAccount*& account(Buffer* b) {
    static_assert(sizeof(Buffer) + sizeof(MemoryAccount*) <= kHeader);
    return *reinterpret_cast<MemoryAccount**>(reinterpret_cast<char*>(b) + kHeader - sizeof(MemoryAccount*));
  }
  static size_t& capacity(Buffer* b) { return b->capacity_; }
  static Runtime*& runtime(Buffer* b) { return b->runtime_; }
};

namespace {

// What a borrowed buffer has in place of its data.
struct Lender {
  void (*release)(void* user, void* data);
  void* user;
  void* data;
};

constexpr unsigned char kGuardByte = 0xA5, kPoisonByte = 0xFF;
constexpr Bytes kMaxBytes = Bytes(uint64_t(1) << 47);  // no machine has more

thread_local int64_t fail_countdown = 0;
thread_local bool fail_persistent = false, fail_happened = false;
thread_local size_t largest_request = kMaxBytes.count();

bool guard_mode() {
  static const bool on = switched_on("PERIGEE_GUARD");
  return on;
}

bool injected_failure() {
  if (fail_countdown == 0) return false;
  if (--fail_countdown > 0) return false;
  fail_happened = true;
  if (fail_persistent) fail_countdown = 1;
  return true;
}

// Under AddressSanitizer: makes only the requested bytes accessible, and none of a block that waits for reuse.
void poison_unasked(const Buffer* b, size_t size) {
  const char* end = static_cast<const char*>(b->data) + b->bytes;
  ASAN_POISON_MEMORY_REGION(end, size_t(reinterpret_cast<const char*>(b) + size - end));
}
void poison_resting(void* block, size_t size) {
  if (size > kHeader) ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + kHeader, size - kHeader);
}

void write_guards(Buffer* b) {
  auto* data = static_cast<unsigned char*>(b->data);
  std::memset(data, kPoisonByte, b->bytes);
  std::memset(data - kGuard, kGuardByte, kGuard);
  std::memset(data + b->bytes, kGuardByte, kGuard);
}

void check_guards(const Buffer* b) {
  auto* data = static_cast<const unsigned char*>(b->data);
  for (size_t i = 0; i < kGuard; ++i)
    if (data[-1 - ptrdiff_t(i)] != kGuardByte || data[b->bytes + i] != kGuardByte) {
      fmt::print(stderr, "perigee: a kernel wrote outside its buffer of {} bytes\n", b->bytes);
      std::abort();
    }
}

// The bytes of a buffer that its account counts. `size`: of its block.
int64_t counted_bytes(Device device, size_t bytes, size_t size) {
  return int64_t(size) + (device.is_cpu() ? 0 : int64_t(bytes));
}

// The bytes of the block of a buffer, which has the data if they are on the CPU.
size_t block_size(Device device, size_t bytes) {
  const size_t guards = guard_mode() ? 2 * kGuard : 0;
  return MemoryPool::class_size(kHeader + (device.is_cpu() ? bytes + guards : 0));
}

Buffer* try_allocate(Device device, Bytes wanted) {
  if (wanted > kMaxBytes || wanted.count() > largest_request) return nullptr;
  const size_t bytes = wanted.count();
  const size_t guard = device.is_cpu() && guard_mode() ? kGuard : 0;
  Runtime& runtime = Runtime::current();
  const size_t size = block_size(device, bytes);
  MemoryAccount* const account = MemoryAccount::current();
  const int64_t counted = counted_bytes(device, bytes, size);
  if (account && !account->take(counted)) return nullptr;
  void* const block = runtime.memory().take(size);
  if (!block) {
    if (account) account->give(counted);
    return nullptr;
  }
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  Buffer* b = BufferAccess::construct(block);
  BufferAccess::account(b) = account;
  BufferAccess::capacity(b) = size;
  BufferAccess::runtime(b) = &runtime;
  b->bytes = bytes;
  b->device = device;
  if (device.is_cpu()) {
    b->data = static_cast<char*>(block) + kHeader + guard;
    if (guard)
      write_guards(b);
    else
      poison_unasked(b, size);
  } else if (!(b->data = device_table(device).allocate(device.index, stream_of(device), std::max<size_t>(bytes, 1)))) {
    runtime.memory().give(block, size);
    if (account) account->give(counted);
    return nullptr;
  }
  if (account) account->retain();
  return b;
}

[[noreturn]] void throw_out_of_memory(Device device, size_t bytes) {
  const MemoryAccount* account = MemoryAccount::current();
  std::string limit;
  if (account)
    limit = fmt::format(" (in a block of {}; the limit is {} bytes, of which {} are in use)",
                        counted_bytes(device, bytes, block_size(device, bytes)), account->limit(), account->used());
  throw OutOfMemory(fmt::format("out of memory: cannot allocate {} bytes on {}{}", bytes, name_of(device), limit));
}

}  // namespace

Ref<Buffer> Buffer::allocate(Device device, Bytes wanted) {
  const size_t bytes = wanted.count();
  const bool injected = injected_failure();
  Buffer* b = injected ? nullptr : try_allocate(device, wanted);
  if (!b) {
    Runtime::current().memory().flush();
    if (!injected) b = try_allocate(device, wanted);
  }
  if (!b) throw_out_of_memory(device, bytes);
  Runtime* const runtime = BufferAccess::runtime(b);
  runtime->retain();
  runtime->memory().count(int64_t(bytes));
  return Ref<Buffer>(b);
}

Ref<Buffer> Buffer::borrow(void* data, Bytes bytes, void (*release)(void* user, void* data), void* user) {
  Ref<Buffer> b = allocate({}, Bytes(sizeof(Lender)));
  new (b->data) Lender{release, user, data};
  b->data = data;
  b->bytes = bytes.count();
  b->borrowed = true;
  return b;
}

void Buffer::destroy(Buffer* b) {
  Runtime& runtime = *BufferAccess::runtime(b);
  if (b->packed.load(std::memory_order_acquire)) b->drop_packed();
  Lender lender = {};
  if (b->borrowed) {
    b->data = reinterpret_cast<char*>(b) + kHeader + (guard_mode() ? kGuard : 0);
    b->bytes = sizeof(Lender);
    lender = *static_cast<Lender*>(b->data);
  }
  runtime.memory().uncount(int64_t(b->bytes));
  if (!b->device.is_cpu()) {
    const ScopedRuntime scope(runtime);  // whose stream uses the memory
    device_table(b->device).release(b->device.index, stream_of(b->device), b->data, std::max<size_t>(b->bytes, 1));
  } else if (guard_mode()) {
    check_guards(b);
  }
  const size_t size = BufferAccess::capacity(b);
  if (MemoryAccount* const account = BufferAccess::account(b)) {
    account->give(counted_bytes(b->device, b->bytes, size));
    account->release();
  }
  poison_resting(b, size);
  b->~Buffer();
  runtime.memory().give(b, size);
  runtime.release();
  if (lender.release) lender.release(lender.user, lender.data);
}

void fail_allocation(int64_t nth, bool persistent) {
  fail_countdown = nth;
  fail_persistent = persistent;
  fail_happened = false;
}
bool allocation_failed() { return fail_happened; }
void limit_allocation(size_t bytes) { largest_request = bytes > 0 ? bytes : kMaxBytes.count(); }

}  // namespace pg
