// Copies of many runs, most of them short, of elements of 1, 2, 4 or 8 bytes.
#pragma once
#include <cstdint>

namespace pg::cpu {

// to[r * to_run + i] = from[r * from_run + i * step] for r < count, i < n. The runs of `to` overlap nothing.
template <class T>
using CopyRuns = void (*)(int64_t n, int64_t count, const T* from, int64_t step, int64_t from_run, T* to,
                          int64_t to_run);

// The function for runs of n elements, n > 0, of that step. T is uint8_t, uint16_t, uint32_t or uint64_t.
template <class T>
CopyRuns<T> runs_copier(int64_t n, int64_t step);
template <>
CopyRuns<uint8_t> runs_copier<uint8_t>(int64_t n, int64_t step);
template <>
CopyRuns<uint16_t> runs_copier<uint16_t>(int64_t n, int64_t step);
template <>
CopyRuns<uint32_t> runs_copier<uint32_t>(int64_t n, int64_t step);
template <>
CopyRuns<uint64_t> runs_copier<uint64_t>(int64_t n, int64_t step);

}  // namespace pg::cpu
