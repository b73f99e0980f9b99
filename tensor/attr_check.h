// Checks attributes against their definitions, whatever their source: scripts, C++ or files.
#pragma once
#include "tensor/op.h"

namespace pg {

// Throws `op: bad argument …` when a whole number is beyond kMaxElements, or when the value is outside the bounds or
// choices of `def`. Absent values pass.
void check_attr(const OpDef& op, const AttrDef& def, const AttrValue& value);

}  // namespace pg
