// What the index families share.
#pragma once
#include "tensor/op.h"

namespace pg {

// The attribute `index_base` of ops that take or give index values.
AttrDef index_base_attr();

// Checks input i, a number or tensor that is written into input 0: it fits its dtype and broadcasts to `target`
// (leading dims of size 1 do not count).
void check_written(const Infer& c, size_t i, const Dims& target);

// The attribute `dim` resolved for input i, which is a tensor of at least 1 dim.
int some_dim(const Infer& c, size_t i);

}  // namespace pg
