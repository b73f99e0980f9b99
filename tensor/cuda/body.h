// Bodies with their compiled kernels.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "tensor/cuda/stream.h"
#include "tensor/function_ref.h"
#include "tensor/kernels/cuda_source.h"

namespace pg::cuda {

// Immutable but for the list of kernels: several threads may run it at once.
class Body {
 public:
  explicit Body(TileBody tiles) : body_(std::move(tiles)) {}
  const TileBody& tiles() const { return body_.tiles; }

  struct Call {
    std::span<const View> in, out;    // the result of a reduction is the last of `out`
    uint64_t host = 0;                // bit k: input k is a number in host memory
    const double* numbers = nullptr;  // instead of those of the body
    const char* place = nullptr;      // KernelArgs::place
  };
  // Queues the body over a space.
  void run(Stream& stream, const Dims& space, const Call& call) const;

 private:
  void reduce(Stream& stream, const CudaCall& call, const View& out) const;
  void set_fault(Stream& stream, const Call& call, CudaCall& arguments) const;
  // Returns the kernel `name` (compared by address) of a form.
  CUfunction kernel(Gpu& gpu, const std::string& form, const char* name, FunctionRef<std::string()> source) const;

  struct Known {
    const Gpu* gpu;
    const char* name;
    std::string form;
    CUfunction kernel;
  };
  const CudaBody body_;
  mutable std::mutex lock_;
  mutable std::vector<Known> known_;
};

}  // namespace pg::cuda
