// Per-thread working memory of the CPU kernels.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/size.h"

namespace pg::cpu {

// There is one buffer per thread and slot. Nested kernels must use different slots.
enum class ScratchSlot { kPad, kPanel, kGrad, kTile, kConvert, kReduce, kOneDnn, kFused, kFusedShared, kCount };

// Returns at least `bytes` bytes, aligned to 64 bytes, with unspecified contents. They are valid until the same thread
// asks for the same slot again. Throws std::bad_alloc. A buffer above 32 MiB is freed when less than half of it is
// asked for.
void* scratch_bytes(ScratchSlot slot, Bytes bytes);

template <class T>
T* scratch(ScratchSlot slot, int64_t count) {
  return static_cast<T*>(scratch_bytes(slot, Bytes::of(count, sizeof(T))));
}

}  // namespace pg::cpu
