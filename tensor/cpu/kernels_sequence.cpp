#include "tensor/cpu/register.h"
#include "tensor/op.h"

namespace pg {

void add_sequence_kernels(Registry&) {}

}  // namespace pg
