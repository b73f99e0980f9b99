// Conversions between float and float16 or bfloat16, many elements a call.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace pg::cpu {

void to_float(const Half* from, float* to, int64_t n);
void to_float(const BFloat16* from, float* to, int64_t n);
void from_float(const float* from, Half* to, int64_t n);
void from_float(const float* from, BFloat16* to, int64_t n);

}  // namespace pg::cpu
