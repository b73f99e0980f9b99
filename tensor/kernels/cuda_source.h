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
#include "tensor/tile.h"

namespace pg {

// The formulas of all pointwise ops. Sources start with it.
std::string_view cuda_formulas();

// Whether bodies like this one have a kernel: it has no reduction, and its argument has few enough words.
bool cuda_expresses(const TileBody& body);
// Whether an op of the body refuses some integers.
bool cuda_refuses(const TileBody& body);

// The kernel of a body and its argument for one call. Sizes, strides and numbers are words of the argument, so that
// calls of one form share a source.
class CudaCall {
 public:
  // The views of outputs may have any strides. Bit k of `numbers`: input k is a number in host memory, which becomes
  // part of the argument.
  CudaCall(const TileBody& body, std::span<const View> in, std::span<const View> out, uint64_t numbers = 0);

  const std::string& form() const { return form_; }  // what the source depends on besides the body
  int64_t elements() const { return elements_; }
  const std::vector<int64_t>& words() const { return words_; }
  // Sets the address of the Fault and the number of the report for a body with cuda_refuses.
  void set_fault(int64_t address, int64_t report);
  // The kernel `name`, correct for any number of threads in one dimension.
  std::string source(const std::string& name) const;

 private:
  void join_dims();
  void describe(std::span<const View> views, size_t first, uint64_t numbers);

  const TileBody& body_;
  size_t operands_;
  Dims sizes_;                 // of the space, with dims joined that all operands traverse with one stride
  std::vector<Dims> strides_;  // of each operand over sizes_
  std::string form_;           // a letter an operand: see describe; then the rank, then the width of positions
  int64_t elements_;
  std::vector<int64_t> words_;
};

}  // namespace pg
