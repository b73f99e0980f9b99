// Span kernels compute one pointwise op over contiguous runs: for calls over contiguous data, and as instructions of
// tile programs (tile_program.h), which handle everything else.
#pragma once
#include <span>
#include <string_view>

#include "tensor/kernel.h"
#include "tensor/kernels/formula.h"

namespace pg::cpu {

// out[i] = op(in[0][i], in[1][i], …) for i < n. Bit k of `scalars`: in[k] is one element for all i. `out` may be one of
// the inputs. Results depend only on the values, not on n, alignment or how an array is cut into spans.
using SpanFn = void (*)(int64_t n, void* out, const void* const* in, uint32_t scalars, const double* params);

inline constexpr int kMaxSpanInputs = 3;
inline constexpr int kMaxSpanParams = 4;
inline constexpr int64_t kTile = 512;  // elements

struct SpanRow : FormulaRow {
  SpanFn fn[kDTypeCount] = {};  // by compute dtype; most go through float32 for float16 and bfloat16
  int index = 0;                // see span_at
};

// The tables for the instruction set of this machine: of formulas-inl.h and of math_formulas-inl.h. The indices of the
// second start at kMaxSpans.
inline constexpr int kMaxSpans = 96;
std::span<const SpanRow> basic_spans();
std::span<const SpanRow> math_spans();

inline const SpanRow& span_at(int index) {
  return index < kMaxSpans ? basic_spans()[size_t(index)] : math_spans()[size_t(index - kMaxSpans)];
}

// Row of an op, or nullptr.
const SpanRow* find_span(std::string_view op);

// Throws the op's error when its second input, `divisor`, has an integer dtype and an element that `check` refuses.
void check_divisor(const OpDef& op, const View& divisor, SpanCheck check);

// to[i] = from[i stride], converted: floats to integers truncate and saturate (NaN gives 0), integers wrap.
using ConvertFn = void (*)(int64_t n, const void* from, int64_t stride, void* to);
ConvertFn converter(DType from, DType to);

// Runs a pointwise op: broadcasting, strides, conversions, threads.
void run_pointwise(const KernelArgs& args, const SpanRow& row);

}  // namespace pg::cpu
