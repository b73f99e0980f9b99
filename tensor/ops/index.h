// Shared by the op families that index.
#pragma once
#include "tensor/op.h"

namespace pg {

// The attribute `index_base` of ops that take or return index values.
AttrDef index_base_attr();

// Checks that input i, a number or tensor, can be written into input 0: its dtype fits, and it broadcasts to `target`
// once its leading dims of size 1 are dropped.
void check_written(const Infer& c, size_t i, const Dims& target);

// Returns the 0-based index of attribute `dim` for input i. Throws when the input has no dims.
int some_dim(const Infer& c, size_t i);

}  // namespace pg
