// Reductions of strided arrays over any set of dims.
#pragma once
#include <algorithm>

#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/reduce/reduce_simd.h"
#include "tensor/kernel.h"

namespace pg {
class Registry;
}

namespace pg::cpu {

// What is stored of a total.
enum class Finish : uint8_t {
  kPlain,
  kScale,  // multiplied by `factor`
  kAny,    // whether a count is not 0
  kAll,    // whether a count equals `factor`
};

struct Reduction {
  ReduceOp op;
  Finish finish = Finish::kPlain;
  double factor = 1;
};

// Reduces `in` over the dims whose bit is set in `mask`. `out` is contiguous and has the other dims in order; dims of
// size 1 do not matter. The result does not depend on the number of threads.
void reduce(const View& in, uint32_t mask, const View& out, const Reduction& reduction);

// Applies reduction.finish to n totals of elements of type `from` and stores the i-th at out + i * stride as type `to`.
void store_totals(DType to, void* out, int64_t stride, const Total* totals, int64_t n, DType from,
                  const Reduction& reduction);

// Whether `outputs` totals of `work` elements each are computed from partial totals, of chunks of so many elements, so
// that threads can share them.
inline bool reduces_in_chunks(int64_t outputs, int64_t work) { return outputs < 16 && work >= 32 << 10; }
inline int64_t reduce_chunk(int64_t work) {
  constexpr int64_t kStep = 8 << 10, kMost = 128 << 10;
  return std::clamp<int64_t>(work / 64 / kStep * kStep, kStep, kMost);
}

// Parts of the family, called by add_reduce_kernels.
void add_scan_kernels(Registry& registry);
void add_softmax_kernels(Registry& registry);
void add_moment_kernels(Registry& registry);

}  // namespace pg::cpu
