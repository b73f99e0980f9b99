// What the linear algebra and convolution rules share.
#pragma once
#include "tensor/rule.h"

namespace pg {

Var matrix_transpose(const Var& v);               // of the last two dims
Var with_shape(const Var& v, const Dims& shape);  // reshape, sizes taken literally

// Whether the right-hand side b of a solve with matrices a holds vectors: where it has their shape without the last
// dim.
bool is_vector_side(const Dims& a, const Dims& b);

void add_einsum_op(Registry& registry);  // parts of the family, called by add_linalg_ops
void add_attention_op(Registry& registry);

}  // namespace pg
