// Shared by the rules of reductions, scans, norms and losses.
#pragma once
#include <algorithm>

#include "tensor/rule.h"

namespace pg {

// Parts of the family, called by add_reduce_ops.
void add_scan_ops(Registry& registry);
void add_softmax_ops(Registry& registry);
void add_statistics_ops(Registry& registry);
void add_order_ops(Registry& registry);

// Attributes of reductions.
inline const AttrDef kReducedDims = {"dim", AttrKind::kDims, {}, "the dims to reduce; all when absent", true};
inline const AttrDef kReducedDim = {"dim", AttrKind::kDim, {}, "the dim to reduce; all when absent", true};
inline const AttrDef kKeepDim = {"keepdim", AttrKind::kBool, false, "keep reduced dims with size 1"};
inline const AttrDef kCorrection = {
    "correction", AttrKind::kFloat, 1.0, "taken from the number of elements in the divisor", false, 0, 1e15};
inline const AttrDef kPositionBase = {
    "index_base", AttrKind::kInt, int64_t(1), "the number of the first position", false, 0, 1};

// Returns the 0-based dims that attribute `dim` names, as one dim or a list. Absent or empty: all dims.
Dims reduced_dims(const AttrReader& c, int rank);

// Returns the result shape of a reduction of input 1, from the attributes `dim` and `keepdim`.
Dims reduced_shape(const Infer& c);
Dims reduced_shape(const AttrReader& c, const Dims& shape);  // the same, of a reduction of this shape

// Throws where a reduced dim has no elements: an empty set has no extreme.
void require_elements(Infer& c);

// For an op with outputs values and indices that takes elements of input 1. Without `dim` the value is the only output,
// and elements equal to it share the gradient; with `dim` the element at the index gets all of it.
void infer_extreme_pair(Infer& c);
Var vjp_extreme_pair(Vjp& c);

// For extremes that no element is equal to, because they are NaN: returns NaN where the count is 0, else 0.
Var zero_or_nan(const Var& count, DType dtype);

// Returns the number of elements that one output of the reduction covers.
double reduced_count(const AttrReader& c, const Dims& shape);

// Reshapes a result of the reduction of input i so that the reduced dims have size 1.
Var restore_dims(const Vjp& c, const Var& v, size_t i);

// The same, broadcast to the shape of input 1.
Var spread(const Vjp& c, const Var& v);

// The compute dtype of kernels: float64 for float64, float32 for the other floats.
inline DType stat_dtype(DType t) { return t == DType::kFloat64 ? t : DType::kFloat32; }

// The option `unbiased` of ops with the attribute `correction`.
AttrDef unbiased_option();
std::vector<Var> expand_unbiased(Expansion& c);

// Removes the reduced dims, which have size 1.
Var drop_dims(const AttrReader& c, const Var& v);

Var reshaped(const Var& v, const Dims& shape);  // reshape in which 0 is a size
Var as_dtype(const Var& v, DType t);

// Returns v shifted by one position along dim d (0-based): towards the end for by = 1, towards the start for by = -1.
// The free position gets `fill`.
Var shifted(const Var& v, int d, int by, double fill);

// Returns constants on the device of `like`: base, base + 1, … along dim d of its shape, size 1 on other dims.
Var positions(const Rule& c, const Value& like, int d, int base);

}  // namespace pg
