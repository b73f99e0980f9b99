// Rows of integer matrix products. They run on the calling thread.
#pragma once
#include <cstdint>

namespace pg::cpu {

// c[n] = a[k] * b[k, n], wrapping around, for integers of `size` bytes: 1, 4 or 8. a_step is the distance between the
// elements of a, b_row that between the rows of b, whose elements are contiguous as those of c.
void multiply_integers(int size, int64_t n, int64_t k, const void* a, int64_t a_step, const void* b, int64_t b_row,
                       void* c);

}  // namespace pg::cpu
