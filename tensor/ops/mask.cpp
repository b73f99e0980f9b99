#include "tensor/op.h"
#include "tensor/ops/all.h"

namespace pg {

void add_mask_ops(Registry&) {}

}  // namespace pg
