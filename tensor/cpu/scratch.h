// Per-thread working memory of the CPU kernels.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/size.h"

namespace pg::cpu {

// One buffer per thread and slot; nested kernels use different slots.
enum class ScratchSlot { kPad, kPanel, kGrad, kTile, kConvert, kReduce, kOneDnn, kFused, kFusedShared, kCount };

// Returns 64-byte aligned memory of at least `bytes`, valid until the same thread asks for the same slot again.
// Contents are unspecified; throws std::bad_alloc. Buffers above 32 MiB are given back when a smaller one is asked for.
void* scratch_bytes(ScratchSlot slot, Bytes bytes);

template <class T>
T* scratch(ScratchSlot slot, int64_t count) {
  return static_cast<T*>(scratch_bytes(slot, Bytes::of(count, sizeof(T))));
}

}  // namespace pg::cpu
