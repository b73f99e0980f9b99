#include "tensor/cpu/scratch.h"

#include <algorithm>
#include <new>

namespace pg::cpu {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kKeepBytes = size_t(32) << 20;

struct ThreadScratch {
  void* data[static_cast<size_t>(ScratchSlot::kCount)] = {};
  size_t size[static_cast<size_t>(ScratchSlot::kCount)] = {};

  ~ThreadScratch() {
    for (void* p : data) release(p);
  }
  static void release(void* p) {
    if (p) ::operator delete(p, std::align_val_t(kAlign));
  }
};

thread_local ThreadScratch tls_scratch;

}  // namespace

void* scratch_bytes(ScratchSlot slot, Bytes wanted) {
  const size_t bytes = wanted.count();
  const size_t i = static_cast<size_t>(slot);
  ThreadScratch& t = tls_scratch;
  const bool oversized = t.size[i] > kKeepBytes && bytes < t.size[i] / 2;
  if (t.size[i] >= bytes && !oversized && t.data[i]) return t.data[i];
  const size_t want = (std::max<size_t>(bytes, 4096) + kAlign - 1) / kAlign * kAlign;
  ThreadScratch::release(t.data[i]);
  t.data[i] = nullptr;
  t.size[i] = 0;
  t.data[i] = ::operator new(want, std::align_val_t(kAlign));
  t.size[i] = want;
  return t.data[i];
}

}  // namespace pg::cpu
