// Pointwise formulas and fused bodies as CUDA C++: source text for NVRTC or nvcc. The formulas are the files of this
// folder that the CPU's kernels are compiled from.
//
// Compile as C++20 with constexpr functions usable on the device: nvcc --expt-relaxed-constexpr, NVRTC
// --device-as-default-execution-space. With --fmad=false, arithmetic rounds as on the CPU.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/kernel.h"
#include "tensor/small_vector.h"
#include "tensor/tile.h"

namespace pg {

// The formulas of all pointwise ops. Sources start with it.
std::string_view cuda_formulas();

// A body and what its calls share. Its space and the shapes of its inputs are not read: each call has its own.
struct CudaBody {
  explicit CudaBody(TileBody body);
  // Whether an argument of a kernel has room for a space of this rank.
  bool fits(int rank) const;
  // What sources depend on besides the form of a call.
  std::string key() const;
  DType operand_dtype(size_t k) const {
    return k < tiles.inputs.size() ? tiles.inputs[k].dtype : tiles.outputs[k - tiles.inputs.size()].dtype;
  }

  struct Number {
    size_t value;  // whose constant or parameter it is
    double number;
    DType dtype;
  };
  TileBody tiles;
  std::vector<bool> needed;     // by value: whether an output or the reduction depends on it
  std::vector<Number> numbers;  // in the order of their words
  bool refuses;                 // whether an op refuses some integers
};

// One call of a body. Sizes, strides and numbers are words of the argument, so that calls of one form share a source.
class CudaCall {
 public:
  // The views of outputs may have any strides; that of the reduction is not among them. Bit k of `host`: input k is a
  // number in host memory, which becomes part of the argument. `numbers` replaces those of the body, unless it is null.
  CudaCall(const CudaBody& body, const Dims& space, std::span<const View> in, std::span<const View> out,
           uint64_t host = 0, const double* numbers = nullptr);

  const std::string& form() const { return form_; }  // what the source depends on besides the body
  int64_t elements() const { return elements_; }
  int64_t groups() const { return (elements_ + width_ - 1) / width_; }  // of elements that a thread takes at once
  std::span<const int64_t> words() const { return words_; }
  // Sets the address of the Fault and the number of the report for a body that refuses.
  void set_fault(int64_t address, int64_t report);
  // The kernel `name`, correct for any number of threads in one dimension.
  std::string kernel(const std::string& name) const;
  // The function `element(words, position)` of a body with a reduction. It stores the outputs at a position and returns
  // the value that is reduced.
  std::string element() const;

 private:
  void join_dims();
  void describe(std::span<const View> views, size_t first, uint64_t host);
  int choose_width() const;
  bool fits_in_32_bits() const;

  const CudaBody& body_;
  size_t operands_;
  Dims sizes_;                    // of the space, with dims joined that all operands traverse with one stride
  SmallVector<Dims, 4> strides_;  // of each operand over sizes_
  std::string form_;              // a letter an operand: see describe; then the rank, the width and that of positions
  int64_t elements_;
  int width_ = 1;
  SmallVector<int64_t, 24> words_;
};

}  // namespace pg
