// The steps of chains for the formulas of math_formulas-inl.h; a part of set_code.
#pragma once
#include "tensor/cpu/pointwise/tile_simd.h"

namespace pg::cpu {

void set_math_code(Step& step, int index, int operand);

}  // namespace pg::cpu
