// Rows of integer matrix products. They run on the calling thread.
#pragma once
#include <cstdint>

namespace pg::cpu {

// c[n] = a[k] * b[k, n], wrapping around, for integers of `size` bytes: 1, 4 or 8. a_step is the distance between the
// elements of a; b and c are contiguous.
void multiply_integers(int size, int64_t n, int64_t k, const void* a, int64_t a_step, const void* b, void* c);

}  // namespace pg::cpu
