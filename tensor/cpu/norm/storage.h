// Calls normalizations for the dtype of their arrays.
#pragma once
#include <algorithm>

#include "tensor/cpu/half.h"
#include "tensor/cpu/norm/norm_simd.h"
#include "tensor/dtype.h"
#include "tensor/kernel.h"

namespace pg::cpu {

template <class H>
constexpr DType kArithmetic = sizeof(H) == 8 ? DType::kFloat64 : DType::kFloat32;

// A kernel that calls f<H>(args) with the type of x and of all arrays of its shape. Where these differ, they are
// converted to float. f is a generic lambda.
template <auto f>
void by_storage(const KernelArgs& args) {
  const View& x = args.in[0];
  const auto fits = [&](const View& v) { return !v || v.dtype() == x.dtype() || !(v.shape() == x.shape()); };
  if (x.dtype() == DType::kFloat64) return f.template operator()<double>(args);
  if (std::all_of(args.in.begin(), args.in.end(), fits) && std::all_of(args.out.begin(), args.out.end(), fits)) {
    if (x.dtype() == DType::kFloat16) return f.template operator()<Half>(args);
    if (x.dtype() == DType::kBFloat16) return f.template operator()<BFloat16>(args);
  }
  run_widened(args, [](const KernelArgs& wide) { f.template operator()<float>(wide); });
}

}  // namespace pg::cpu
