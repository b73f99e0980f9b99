// Copies between strided and contiguous memory.
#pragma once
#include "tensor/kernel.h"

namespace pg::cpu {

// Writes the elements of `from` to `to` in row-major order.
void copy_strided(const View& from, void* to);

}  // namespace pg::cpu
