// Shared by the rules of linear algebra and convolutions.
#pragma once
#include "tensor/rule.h"

namespace pg {

inline constexpr uint16_t kReal = 0x180;  // float32, float64

Var matrix_transpose(const Var& v);               // swaps the last two dims
Var with_shape(const Var& v, const Dims& shape);  // reshape in which 0 is a size
Var matmul(const Var& a, const Var& b);
Var insert_dim(const Var& v, int64_t dim);                    // unsqueeze
Var diagonal(const Var& v);                                   // of the matrices in the last two dims
Var diagonal_matrix(const Var& v);                            // whose diagonals are the last dim of v
Var first_rows(const Var& v, int64_t count);                  // of the matrices in the last two dims
Var first_columns(const Var& v, int64_t count);               // likewise
Var scale_columns(const Var& matrix, const Var& v);           // matrix diag(v)
Var identity_like(const Var& v);                              // for square matrices in the last two dims
Var symmetric_part(const Var& v);                             // (v + v^T) / 2
Var triangle(const Var& v, bool upper, bool strict = false);  // tril or triu, without the diagonal if `strict`

// The shape without its last dims.
Dims batch_of(const Dims& shape, int matrix_dims);

// Checks that input i has matrices, or square ones, in its last two dims.
void require_matrices(Infer& c, size_t i);
void require_square(Infer& c, size_t i);
void infer_square(Infer& c);  // the output has the type of the square matrices in input 1

// Whether the right-hand side b of a solve holds vectors, not matrices: its shape is that of the matrices a without the
// last dim.
bool is_vector_side(const Dims& a, const Dims& b);

// a^-1 b for a triangular a, of which op(a) is the transpose if `transposed`; b a^-1 if not `left`.
struct Side {
  bool upper, left = true, transposed = false, unit = false;
};
Var solve_triangular(const Var& a, const Var& b, Side side);

void add_einsum_op(Registry& registry);  // parts of the family, called by add_linalg_ops
void add_attention_op(Registry& registry);
void add_solve_ops(Registry& registry);
void add_factor_ops(Registry& registry);
void add_determinant_ops(Registry& registry);
void add_matrix_function_ops(Registry& registry);

}  // namespace pg
