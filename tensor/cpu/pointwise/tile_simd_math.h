// The steps of chains that apply elementary functions (PERIGEE_CHAIN_MATH); a part of set_code.
#pragma once
#include "tensor/cpu/pointwise/tile_simd.h"

namespace pg::cpu {

void set_math_code(Step& step, ChainOp op);

}  // namespace pg::cpu
