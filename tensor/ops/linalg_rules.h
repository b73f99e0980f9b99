// Shared by the rules of linear algebra and convolutions.
#pragma once
#include "tensor/rule.h"

namespace pg {

Var matrix_transpose(const Var& v);               // swaps the last two dims
Var with_shape(const Var& v, const Dims& shape);  // reshape in which 0 is a size

// Whether the right-hand side b of a solve holds vectors, not matrices: its shape is that of the matrices a without the
// last dim.
bool is_vector_side(const Dims& a, const Dims& b);

void add_einsum_op(Registry& registry);  // parts of the family, called by add_linalg_ops
void add_attention_op(Registry& registry);

}  // namespace pg
