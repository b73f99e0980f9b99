// Launches of kernels.
#pragma once
#include <initializer_list>
#include <string>

#include "tensor/cuda/compiler.h"
#include "tensor/cuda/stream.h"
#include "tensor/function_ref.h"

namespace pg::cuda {

inline constexpr unsigned kThreads = 256;  // of a block

// Whether PERIGEE_CUDA_SYNC is set: each launch waits for its kernel, and there are no programs.
bool waits_each();
// Runs a kernel whose threads share `count` elements among them, in any number.
void launch(Stream& stream, CUfunction kernel, int64_t count, const void* argument);
// Runs `blocks` blocks of `threads` threads.
void launch_blocks(Stream& stream, CUfunction kernel, int64_t blocks, unsigned threads, const void* argument);

// A kernel of tensor/cuda/kernels/FAMILY.cuh. `types` is the text of declarations that it depends on.
CUfunction family_kernel(Stream& stream, const char* family, const std::string& types, const char* name);
// The same, found without a text: `types` is called at the first use of the key.
CUfunction family_kernel(Stream& stream, const KernelKey& key, FunctionRef<std::string()> types);
// A number for a few dtypes.
inline uint64_t dtypes_code(std::initializer_list<DType> list) {
  uint64_t code = 1;
  for (const DType t : list) code = code << 4 | uint64_t(t);
  return code;
}
// The type of an element in source text.
const char* type_text(DType t);
// The dtype of the size of t whose kernels move elements of t.
DType moved(DType t);

// Copies bytes to the host, after all work of the stream. A call that is captured cannot read.
void read_back(Stream& stream, void* to_host, const void* from, size_t bytes);

// Memory for one call. Later work of the stream reuses it, or that of the program that is being captured.
class Scratch {
 public:
  Scratch(Stream& stream, size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  Stream& stream_;
  void* data_;
};

}  // namespace pg::cuda
