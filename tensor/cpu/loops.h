// Pragmas for the loop that follows, in the spelling of each compiler.
#pragma once

#if defined(__clang__)
#define PERIGEE_UNROLL _Pragma("clang loop unroll(full)")  // needs a constant count of at most 16
#define PERIGEE_UNROLL_BY_4 _Pragma("clang loop unroll_count(4)")
#define PERIGEE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PERIGEE_UNROLL _Pragma("GCC unroll 16")
#define PERIGEE_UNROLL_BY_4 _Pragma("GCC unroll 4")
#define PERIGEE_INDEPENDENT _Pragma("GCC ivdep")  // no iteration may read what another one writes
#endif
