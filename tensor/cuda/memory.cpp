#include "tensor/cuda/memory.h"

#include <utility>

#include "tensor/cuda/gpu.h"
#include "tensor/cuda/stream.h"

namespace pg::cuda {
namespace {

constexpr size_t kAlign = 512;
constexpr size_t kSmall = size_t(1) << 20;    // larger requests come from segments of their own
constexpr size_t kSegment = size_t(2) << 20;  // of small blocks; others are a multiple of it

size_t aligned(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* Memory::allocate(Stream* stream, size_t bytes) {
  if (bytes > (size_t(1) << 47)) return nullptr;
  const std::lock_guard hold(lock_);
  bytes = aligned(bytes, kAlign);
  const bool small = bytes <= kSmall;
  Block* block = find(stream, bytes, small);
  if (!block && (block = find(nullptr, bytes, small))) block->stream = stream;
  if (!block) block = reserve(stream, bytes, small);
  if (!block) {
    flush();
    block = reserve(stream, bytes, small);
  }
  if (!block) return nullptr;
  split(block, bytes);
  counts_.used += block->bytes;
  return block->data;
}

void Memory::release(Stream* stream, void* data) {
  const std::lock_guard hold(lock_);
  Block* block = blocks_.at(data).get();
  block->stream = stream;
  counts_.used -= block->bytes;
  add_free(block);
}

// The least free block that is large enough.
Memory::Block* Memory::find(Stream* stream, size_t bytes, bool small) {
  Free& free = free_[{stream, small}];
  Block key{nullptr, bytes, stream};
  const auto found = free.lower_bound(&key);
  if (found == free.end()) return nullptr;
  Block* block = *found;
  free.erase(found);
  block->free = false;
  return block;
}

Memory::Block* Memory::reserve(Stream* stream, size_t bytes, bool small) {
  bytes = aligned(bytes, kSegment);
  CUdeviceptr data = 0;
  const CUresult status = driver().cuMemAlloc.status(&data, bytes);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check_driver(status, "cuMemAlloc");
  counts_.reserved += bytes;
  auto block = std::make_unique<Block>(Block{reinterpret_cast<char*>(data), bytes, stream});
  block->small = small;
  return (blocks_[block->data] = std::move(block)).get();
}

// Keeps `bytes` of a block that is taken, and frees the rest.
void Memory::split(Block* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (rest < (block->small ? kAlign : kSmall)) return;
  auto right = std::make_unique<Block>(Block{block->data + bytes, rest, block->stream});
  right->small = block->small;
  right->before = block;
  right->after = block->after;
  if (right->after) right->after->before = right.get();
  block->after = right.get();
  block->bytes = bytes;
  Block* added = (blocks_[right->data] = std::move(right)).get();
  add_free(added);
}

Memory::Block* Memory::join(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after) left->after->before = left;
  blocks_.erase(right->data);
  return left;
}

void Memory::add_free(Block* block) {
  Free& free = free_[{block->stream, block->small}];
  const auto takes = [&](Block* other) {
    if (!other || !other->free || other->stream != block->stream) return false;
    free.erase(other);
    return true;
  };
  if (takes(block->after)) join(block, block->after);
  if (takes(block->before)) block = join(block->before, block);
  block->free = true;
  free.insert(block);
}

void Memory::flush() {
  for (auto& [owner, free] : free_) {
    bool waited = false;
    for (auto at = free.begin(); at != free.end();) {
      Block* block = *at;
      if (block->before || block->after) {
        ++at;
        continue;
      }
      if (owner.first && !std::exchange(waited, true)) driver().cuStreamSynchronize(owner.first->handle);
      at = free.erase(at);
      driver().cuMemFree(reinterpret_cast<CUdeviceptr>(block->data));
      counts_.reserved -= block->bytes;
      blocks_.erase(block->data);
    }
  }
}

void Memory::forget(Stream* stream) {
  const std::lock_guard hold(lock_);
  for (const bool small : {false, true}) {
    const auto found = free_.find({stream, small});
    if (found == free_.end()) continue;
    const Free blocks = std::move(found->second);
    free_.erase(found);
    for (Block* block : blocks) block->stream = nullptr;
    free_[{nullptr, small}].insert(blocks.begin(), blocks.end());
  }
}

MemoryCounts Memory::counts() {
  const std::lock_guard hold(lock_);
  return counts_;
}

}  // namespace pg::cuda
