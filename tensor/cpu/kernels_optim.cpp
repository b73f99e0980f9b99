#include "tensor/cpu/register.h"
#include "tensor/op.h"

namespace pg {

void add_optim_kernels(Registry&) {}

}  // namespace pg
