// Packed weights: arrays in the layout that a prepared kernel prefers. Plans have their own (graph/exec/pack.h); those
// of eager calls belong to the buffer of the weight.
#pragma once
#include <memory>
#include <vector>

#include "tensor/attr.h"
#include "tensor/kernel.h"
#include "tensor/small_vector.h"

namespace pg {

// Memory of a packed array, which counts in the sum of its runtime.
class PackedBytes {
 public:
  PackedBytes() = default;
  // Returns null if the runtime holds too many. Throws OutOfMemory.
  static std::unique_ptr<const PackedBytes> allocate(size_t bytes);
  ~PackedBytes();
  PackedBytes(const PackedBytes&) = delete;
  PackedBytes& operator=(const PackedBytes&) = delete;
  void* data() const { return buffer_->data; }

 private:
  Ref<Buffer> buffer_;  // keeps the runtime
};

// Bytes of all packed weights of the current runtime.
size_t held_packed_bytes();

// The prepared kernels of eager calls whose weight may be packed, for one context.
class PreparedCalls {
 public:
  // Returns null if there is no such kernel for the types and attributes of a call. All inputs are contiguous. The
  // result is valid until the next call.
  const std::shared_ptr<const PreparedKernel>& find(const KernelArgs& args, PrepareFn prepare);

 private:
  struct Entry {
    const OpDef* op = nullptr;
    int threads = 0;
    bool in_job = false;  // where calls of libraries are short
    SmallVector<Type, 3> in;
    Attrs attrs;
    std::shared_ptr<const PreparedKernel> kernel;
    bool is_of(const KernelArgs& args) const;
  };
  std::vector<Entry> entries_;
};

// Returns the packed form of a weight that a kernel reads, or null at its first use since it was written, and where
// there is little memory. `weight` has all elements of `source`, a buffer of the CPU that is not borrowed. The form is
// there until the weight is written or ends.
const void* packed_form(const std::shared_ptr<const PreparedKernel>& kernel, const View& weight, Buffer& source);

}  // namespace pg
