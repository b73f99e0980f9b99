// The bounds of attributes, wherever they come from.
#pragma once
#include "tensor/op.h"

namespace pg {

// Throws `op: bad argument …` for a whole number beyond kMaxElements, and for what is outside of the bounds and
// choices of its definition. Absent values pass.
void check_attr(const OpDef& op, const AttrDef& def, const AttrValue& value);

}  // namespace pg
