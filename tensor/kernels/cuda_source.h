// Pointwise formulas and fused bodies as CUDA C++: source text for NVRTC or nvcc. The formulas are the files of this
// folder that the CPU's kernels are compiled from.
//
// Compile as C++20 with constexpr functions usable on the device: nvcc --expt-relaxed-constexpr, NVRTC
// --device-as-default-execution-space. With --fmad=false, arithmetic rounds as on the CPU.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/kernel.h"
#include "tensor/tile.h"

namespace pg {

// The formulas of all pointwise ops. Sources start with it.
std::string_view cuda_formulas();

// Returns the kernel `name` of a body: extern "C" __global__ void name(Words), correct for any number of threads in one
// dimension. Returns nullopt for a body with a reduction.
std::optional<std::string> cuda_kernel(const TileBody& body, const std::string& name);

// Returns the words of the kernel's argument: addresses of the inputs, strides of each input over the space, addresses
// of the outputs.
std::vector<int64_t> cuda_arguments(const TileBody& body, std::span<const View> in, std::span<const View> out);

}  // namespace pg
