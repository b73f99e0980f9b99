#include "tensor/cpu/register.h"
#include "tensor/op.h"

namespace pg {

void add_linalg_kernels(Registry&) {}

}  // namespace pg
