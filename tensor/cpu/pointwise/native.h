// Machine code for chains: runs of steps of the simple formulas become one step, whose values stay in vector registers.
#pragma once
#include <memory>
#include <vector>

#include "tensor/cpu/pointwise/tile_simd.h"

namespace pg::cpu {

// Owns machine code.
class NativeCode {
 public:
  virtual ~NativeCode() = default;
};

// Sets `block` of the first step of each run that it compiles. The code computes the bits of the steps, but for the
// sign and payload of NaN, then jumps to the step after the run. `part` and `one` stay as they are. Does nothing, and
// returns null, where the machine or the system has no way to run generated code, and under PERIGEE_NATIVE=0. The steps
// must not move any more, and the result must live as long as they do.
std::shared_ptr<const NativeCode> compile_native(std::vector<Step>& steps);

}  // namespace pg::cpu
