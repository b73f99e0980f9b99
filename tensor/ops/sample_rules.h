// For decompositions that read images between their elements.
#pragma once
#include "tensor/rule.h"

namespace pg {

// Returns x (batch, channels, height, width) at the given rows and columns (batch, points), counted from 0, as (batch,
// channels, points): bilinear, with zeros outside. `factor` (batch, 1, points), if defined, multiplies the results.
Var sample_bilinear(const Var& x, const Var& rows, const Var& columns, const Var& factor);

}  // namespace pg
