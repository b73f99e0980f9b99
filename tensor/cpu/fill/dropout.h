// Dropout of a part of a tensor, for kernels that hold only this part.
#pragma once
#include <cstdint>

#include "tensor/random.h"

namespace pg::cpu {

// Applies to x what the op dropout with this key and share p applies to elements [first, first + n) of its input. Runs
// on the calling thread.
void drop(const RandomKey& key, double p, int64_t first, int64_t n, float* x);
void drop(const RandomKey& key, double p, int64_t first, int64_t n, double* x);

}  // namespace pg::cpu
