#include "tensor/cpu/scratch.h"

#include <algorithm>
#include <new>

namespace pg::cpu {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kKeepBytes = size_t(32) << 20;

// Trivial, so that a kernel may still use it in a handler of exit(), after the thread's destructors have run.
struct ThreadScratch {
  void* data[static_cast<size_t>(ScratchSlot::kCount)];
  size_t size[static_cast<size_t>(ScratchSlot::kCount)];

  void release(size_t i) {
    if (data[i]) ::operator delete(data[i], std::align_val_t(kAlign));
    data[i] = nullptr;
    size[i] = 0;
  }
};

thread_local ThreadScratch tls_scratch;

// Releases the memory when the thread ends.
struct Release {
  bool armed = false;
  ~Release() {
    for (size_t i = 0; i < static_cast<size_t>(ScratchSlot::kCount); ++i) tls_scratch.release(i);
  }
};
thread_local Release tls_release;

}  // namespace

void* scratch_bytes(ScratchSlot slot, Bytes wanted) {
  const size_t bytes = wanted.count();
  const size_t i = static_cast<size_t>(slot);
  ThreadScratch& t = tls_scratch;
  const bool oversized = t.size[i] > kKeepBytes && bytes < t.size[i] / 2;
  if (t.size[i] >= bytes && !oversized && t.data[i]) return t.data[i];
  const size_t want = (std::max<size_t>(bytes, 4096) + kAlign - 1) / kAlign * kAlign;
  t.release(i);
  tls_release.armed = true;  // constructs it
  t.data[i] = ::operator new(want, std::align_val_t(kAlign));
  t.size[i] = want;
  return t.data[i];
}

}  // namespace pg::cpu
