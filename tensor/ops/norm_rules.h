// Shared by the rules of norms.
#pragma once
#include "tensor/ops/reduce_rules.h"

namespace pg {

// Parts of the family, called by add_norm_ops.
void add_batch_norm_ops(Registry& registry);
void add_response_norm_op(Registry& registry);

inline const AttrDef kEps = {"eps", AttrKind::kFloat, 1e-5, "added to the variance", false, 0, 1e300};
inline const InputDef kX = {"x", kFloating};
inline const InputDef kWeight = {"weight", kFloating, Arity::kOptional, 0.5, 2, "factors"};
inline const InputDef kBias = {"bias", kFloating, Arity::kOptional, -2, 2, "terms"};
inline const InputDef kRunningMean = {"running_mean", kFloating, Arity::kOptional, -2, 2, "of each channel"};
inline const InputDef kRunningVar = {"running_var", kFloating, Arity::kOptional, 0.5, 2, "of each channel"};
inline const InputDef kMean = {"mean", kFloating};
inline const InputDef kRstd = {"rstd", kFloating, Arity::kOne, 0.5, 2};
inline const InputDef kCotangent = {"dy", kFloating};

// Throw bad_input unless input i
// - is float64 exactly when x is,
void check_precision(Infer& c, size_t i);
// - is a cotangent of x: has its shape,
void check_cotangent(const Infer& c, size_t i);
// - and i + 1 are statistics of the forward op: have `shape` and the compute dtype,
void check_stats(const Infer& c, size_t i, const Dims& shape);
// - and all later ones have one element per channel and the precision of x.
void check_channels(Infer& c, size_t i, int64_t channels);

Var per_channel(const Var& v, int rank);  // reshapes (C) to (C, 1, …), for broadcasting against `rank` dims
Ints all_but_channels(int rank);          // returns the dims except dim 2, 1-based

}  // namespace pg
