// Conditional nodes of CUDA graphs, and what loops on the device need besides.
#pragma once
#include <string_view>

#include "tensor/cuda/gpu.h"
#include "tensor/device_table.h"

namespace pg::cuda {

// A graph whose nodes run one after the other.
struct Chain {
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;
};

// Whether the driver has conditional nodes whose bodies may have copies and conditions: from CUDA 12.4 on.
bool has_conditional_nodes();
// Adds a node that runs what `fill` adds to its body, if or while the flag says so.
void add_condition(Gpu& gpu, Chain& chain, When when, const void* flag, FunctionRef<void(Chain& body)> fill);

// The module with the kernel that sets the value of a condition, as PTX.
std::string_view condition_text();

void next_step(int index, void* stream, const LoopState& loop, bool first);
void read_row(int index, void* stream, void* to, const void* rows, size_t bytes, const int64_t* number);
void write_row(int index, void* stream, void* rows, const void* from, size_t bytes, const int64_t* number);

}  // namespace pg::cuda
