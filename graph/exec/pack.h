// Packed weights of plans. Plans that need the same layout share them.
#pragma once
#include <memory>

#include "tensor/packed.h"

namespace pg {

// The packed form of an array. It holds the array's buffer, so the array cannot be rewritten in place. A change makes a
// new buffer, which shows that the packed form is out of date.
struct Packed {
  const void* data = nullptr;  // elements of the array
  std::shared_ptr<const PreparedKernel> kernel;
  Ref<Buffer> source;
  std::unique_ptr<const PackedBytes> bytes;
  struct PackedArrays* known = nullptr;  // the list that has it, of its runtime
  ~Packed();
};

// The packed form of one input of one step in one frame. An array is packed after it was seen in `needed_` runs in a
// row. If packing did not pay, more runs are needed the next time; once it does, as few as at first.
class PackSlot {
 public:
  // This or pack_once must be called before each run with the view of the input. `source` is the array's buffer, or
  // null if it must not be kept or the run writes into it.
  void refresh(const std::shared_ptr<const PreparedKernel>& kernel, const View& view, const Ref<Buffer>& source) {
    once_ = false;
    if (packed_ && packed_->data == view.data && packed_->source.get() == source.get())
      ++runs_;
    else
      change(kernel, view, source);
  }
  // Packs for one run only. Nothing is packed if there is no memory.
  void pack_once(const PreparedKernel& kernel, const View& view);

  const void* data() const { return packed_ ? packed_->bytes->data() : once_ ? own_->data : nullptr; }

 private:
  void change(const std::shared_ptr<const PreparedKernel>& kernel, const View& view, const Ref<Buffer>& source);

  const void* seen_ = nullptr;
  static constexpr uint32_t kFewestNeeded = 2;
  uint32_t runs_ = 0, needed_ = kFewestNeeded;
  std::shared_ptr<const Packed> packed_;
  Ref<Buffer> own_;  // of pack_once
  bool once_ = false;
};

}  // namespace pg
