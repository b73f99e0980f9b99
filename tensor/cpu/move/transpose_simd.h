// Transposed copies of matrices of elements of 1, 2, 4 or 8 bytes.
#pragma once
#include <cstdint>

namespace pg::cpu {

// to[c * to_row + r] = from[r * from_row + c] for r < rows, c < columns.
void transpose(int64_t rows, int64_t columns, const uint8_t* from, int64_t from_row, uint8_t* to, int64_t to_row);
void transpose(int64_t rows, int64_t columns, const uint16_t* from, int64_t from_row, uint16_t* to, int64_t to_row);
void transpose(int64_t rows, int64_t columns, const uint32_t* from, int64_t from_row, uint32_t* to, int64_t to_row);
void transpose(int64_t rows, int64_t columns, const uint64_t* from, int64_t from_row, uint64_t* to, int64_t to_row);
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_row, float* to, int64_t to_row);

}  // namespace pg::cpu
