// Packed weights: arrays in the layout that a prepared kernel likes best, shared by all plans that want the same.
#pragma once
#include <memory>

#include "tensor/kernel.h"

namespace pg {

// The packed form of an array. Holding the array's buffer keeps it from being rewritten: whoever changes it gets
// another one, which shows.
struct Packed {
  const void* data = nullptr;  // the array
  std::shared_ptr<const PreparedKernel> kernel;
  Ref<Buffer> source, bytes;
  ~Packed();
};

// The packed form of one input of one step in one frame. An array is packed when it was seen in `needed` runs in a row;
// packing that did not pay makes the next one harder.
class PackSlot {
 public:
  // To be called before each run with what the input shows in it. `source`: the array's buffer; null if it may not be
  // kept.
  void refresh(const std::shared_ptr<const PreparedKernel>& kernel, const View& view, const Ref<Buffer>& source) {
    if (packed_ && packed_->data == view.data)
      ++runs_;
    else
      change(kernel, view, source);
  }
  const void* data() const { return packed_ ? packed_->bytes->data : nullptr; }

 private:
  void change(const std::shared_ptr<const PreparedKernel>& kernel, const View& view, const Ref<Buffer>& source);

  const void* seen_ = nullptr;
  uint32_t runs_ = 0, needed_ = 2;
  std::shared_ptr<const Packed> packed_;
};

// Bytes of packed weights in all plans.
size_t held_packed_bytes();

}  // namespace pg
