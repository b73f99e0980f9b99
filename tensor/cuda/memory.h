// A caching allocator of device memory. Blocks are cut from segments of the driver and belong to the stream that used
// them last; a stream may take a block that it released before without waiting, since its work runs in order. The
// driver's own pools (cuMemAllocFromPoolAsync) would need a call of the driver for each tensor.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace pg::cuda {

struct Gpu;
struct Stream;

struct MemoryCounts {
  size_t reserved = 0, used = 0;  // bytes of segments, and of blocks in use
};

class Memory {
 public:
  explicit Memory(Gpu& gpu) : gpu_(gpu) {}
  // Returns null when memory has run out, after the cache was emptied.
  void* allocate(Stream* stream, size_t bytes);
  void release(Stream* stream, void* data);
  void forget(Stream* stream);  // the stream has no work left and gets none
  MemoryCounts counts();

 private:
  // A part of a segment. Neighbours in the segment are linked.
  struct Block {
    char* data;
    size_t bytes;
    Stream* stream;
    bool free = false, small = false;
    Block *before = nullptr, *after = nullptr;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  using Free = std::set<Block*, BySize>;

  Block* find(Stream* stream, size_t bytes, bool small);
  Block* reserve(Stream* stream, size_t bytes, bool small);
  void split(Block* block, size_t bytes);
  Block* join(Block* left, Block* right);
  void add_free(Block* block);
  void flush();  // gives free segments back

  Gpu& gpu_;
  std::mutex lock_;
  std::map<std::pair<Stream*, bool>, Free> free_;  // by stream and whether the segment is one of small blocks
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;
  MemoryCounts counts_;
};

}  // namespace pg::cuda
