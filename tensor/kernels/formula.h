// What the lists of pointwise formulas (formulas-inl.h, math_formulas-inl.h) say of each one.
#pragma once
#include <cstdint>

namespace pg {

// The dtypes that a formula computes in. float16 and bfloat16 go through float32.
enum class Serves : uint8_t { kFloats, kNumbers, kAll, kIntegers };  // kIntegers: and bool

// What is refused about the values of an integer divisor or exponent before anything is written.
enum class SpanCheck : uint8_t { kNothing, kZeroDivisor, kNegativeExponent };

struct FormulaRow {
  const char* op;  // name in the registry
  int inputs;
  Serves serves;
  int cost = 100;      // of a span kernel: picoseconds per element, roughly
  int step_cost = 25;  // of a step of a chain
  SpanCheck check = SpanCheck::kNothing;
  bool condition = false;  // the first input is a bool
  bool lanes = true;       // chains have a step for it, which computes on vectors of float
  bool simd = false;       // float32 and float64 are computed on vectors everywhere
  bool signs = false;      // only the sign changes: float16 and bfloat16 are computed on their bits

  constexpr bool on_floats() const { return serves != Serves::kIntegers; }
  constexpr bool on_integers() const { return serves != Serves::kFloats; }
  constexpr bool on_bools() const { return serves == Serves::kAll || serves == Serves::kIntegers; }
};

}  // namespace pg
