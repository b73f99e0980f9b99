// Advice for the loop that follows, as each compiler spells it.
#pragma once

#if defined(__clang__)
#define PERIGEE_UNROLL _Pragma("clang loop unroll(full)")  // the count is a constant of at most 16
#define PERIGEE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PERIGEE_UNROLL _Pragma("GCC unroll 16")
#define PERIGEE_INDEPENDENT _Pragma("GCC ivdep")  // no iteration reads what another one writes
#endif
