// What the rules of reductions, scans and norms share.
#pragma once
#include <algorithm>

#include "tensor/rule.h"

namespace pg {

// Parts of the family, called by add_reduce_ops.
void add_scan_ops(Registry& registry);
void add_softmax_ops(Registry& registry);

// The dims of attribute `dim`, which is one dim or a list of them; all when absent or empty. 0-based.
Dims reduced_dims(const AttrReader& c, int rank);

// The inferred shape of a reduction of input 1 with attributes `dim` and `keepdim`.
Dims reduced_shape(const Infer& c);

// The number of elements that one output of the reduction covers.
double reduced_count(const AttrReader& c, const Dims& shape);

// A result of the reduction of input i of the op, with the reduced dims back as dims of size 1.
Var restore_dims(const Vjp& c, const Var& v, size_t i);

// The same, repeated to the shape of input 1.
Var spread(const Vjp& c, const Var& v);

// Removes the reduced dims, which have size 1.
Var drop_dims(const AttrReader& c, const Var& v);

Var reshaped(const Var& v, const Dims& shape);  // takes 0 literally
Var as_dtype(const Var& v, DType t);

// v moved by one place along dim d (0-based), towards the end when by = 1, towards the start when by = -1; the free
// place gets `fill`.
Var shifted(const Var& v, int d, int by, double fill);

// 0-dim or broadcastable constants on the device of `like`: base, base + 1, … along dim d of its shape, 1 elsewhere.
Var positions(const Rule& c, const Value& like, int d, int base);

}  // namespace pg
