// Products of bfloat16 matrices with float32 sums, by the tiles of AMX or the dot products of AVX-512. Both treat
// subnormal elements and sums as 0.
#pragma once
#include <cstdint>

#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/dtype.h"

namespace pg::cpu {

enum class Bf16Unit { kNone, kPairs, kTiles };

// The instructions that gemm_bf16 uses: those of the CPU, where they are faster than float32 products. With kNone it
// must not be called.
Bf16Unit bf16_unit();
inline bool multiplies_bf16() { return bf16_unit() != Bf16Unit::kNone; }

// For tests: uses this unit from now on, and returns true, if the CPU has it.
bool use_bf16_unit(Bf16Unit unit);

// What becomes of the sums: they are stored as float32 or rounded to bfloat16.
template <class T>
struct Bf16Result {
  T* data;
  int64_t ld;
  bool adds = false;  // to what is there
  Epilogue<float> finish = {};
};

// Row-major c[m, n] = op(a)[m, k] * op(b)[k, n] for m, n, k >= 1; op transposes if asked. lda, ldb and c.ld are
// distances between stored rows, in elements. Large products use the thread pool. T is float or BFloat16; with float, A
// may be float too, and its elements are rounded. The bits of a result depend on the sizes, not on the number of
// threads.
template <class A, class T>
void gemm_bf16(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const A* a, int64_t lda, const BFloat16* b,
               int64_t ldb, const Bf16Result<T>& c);

}  // namespace pg::cpu
