// Programs: work that is captured into a CUDA graph.
#pragma once
#include <memory>
#include <vector>

#include "tensor/cuda/stream.h"

namespace pg::cuda {

// What the kernels of a program need while it lives.
struct Capture {
  std::vector<void*> scratch;
  std::vector<std::shared_ptr<const void>> kept;
};

void begin_capture(int index, void* stream);
void* end_capture(int index, void* stream, void* old);
void launch_program(int index, void* stream, void* program);
void destroy_program(int index, void* program);

}  // namespace pg::cuda
