// The kernel of sum_rows.
#pragma once
#include "tensor/kernel.h"

namespace pg::cpu {

void sum_rows(const KernelArgs& a);

}  // namespace pg::cpu
