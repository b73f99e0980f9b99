// Convolutions of images (N, spatial..., C) by oneDNN, split over the thread pool: of float32, and of bfloat16
// where the CPU multiplies it.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/function_ref.h"

namespace pg::cpu {

// A convolution that is prepared once. Immutable: runs may overlap when each has its own scratch memory.
class ConvLast {
 public:
  // Returns null where the library has no implementation. `type`: of images and weights. `bias`: whether runs have one.
  static std::unique_ptr<const ConvLast> make(DType type, const ConvShape& s, bool bias);

  // `packed` is the result of pack(w), or null. Calls finish(n, part) for parts of the result that are in the caches.
  // `scratch` has scratch_bytes(). The bits depend neither on the number of threads nor on `packed`.
  using FinishPart = FunctionRef<void(int64_t n, void* part)>;
  void run(const void* x, const void* w, const void* packed, const float* bias, FinishPart finish, void* y,
           void* scratch) const;
  void pack(const void* w, void* packed) const;
  bool packs_like(const ConvLast& other) const;

  size_t scratch_bytes() const { return packed_bytes_ + part_bytes_ * shares_.size(); }
  size_t packed_bytes() const { return packed_bytes_; }  // 0: the plain layout is the best one

  // A share of the work: some images, a strip of one, or some output channels.
  struct Share {
    ConvShape shape;
    int64_t x = 0, y = 0;  // the first element of the share in both arrays
    int64_t channel = 0;   // its first output channel
  };

 private:
  ConvLast(DType type, const ConvShape& s, std::vector<Share> shares, bool bias);
  bool ready() const;
  bool splits_channels() const { return shares_.back().channel > 0; }
  // The number of packed weight arrays, and the bytes of the first `count` of them.
  size_t packs() const { return splits_channels() ? shares_.size() : 1; }
  size_t packed_at(size_t count) const;

  int64_t channels_, weights_, element_;  // output channels; weights of each; bytes of a number
  std::vector<Share> shares_;
  std::vector<std::unique_ptr<const OneDnnPrepared>> primitives_;
  size_t result_bytes_ = 0, part_bytes_ = 0;  // of a share: its result where it has to be copied; all its scratch
  size_t packed_bytes_ = 0;
};

}  // namespace pg::cpu
