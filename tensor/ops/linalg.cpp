#include "tensor/op.h"
#include "tensor/ops/all.h"

namespace pg {

void add_linalg_ops(Registry&) {}

}  // namespace pg
