// Shared by the op families that index.
#pragma once
#include "tensor/rule.h"

namespace pg {

// Parts of the family, called by add_index_ops.
void add_embedding_bag_ops(Registry& registry);
void add_read_positions_op(Registry& registry);

// The attribute `index_base` of ops that take or return index values.
AttrDef index_base_attr();

// The attribute `dim` of ops whose index values are positions of one dim.
AttrDef index_dim_attr();

// Checks that input i, a number or tensor, can be written into input 0: its dtype fits, and it broadcasts to `target`
// once its leading dims of size 1 are dropped.
void check_written(const Infer& c, size_t i, const Dims& target);

// Checks that the attribute `padding_idx`, if it is given, names a row of input 1.
void check_padding_row(const Infer& c);

// Returns the 0-based index of attribute `dim` for input i. Throws when the input has no dims.
int some_dim(const Infer& c, size_t i);

// The rules of ops like scatter: inputs x, index and src, which is indexed like the index.
void infer_scatter(Infer& c);
Var grad_scattered(Vjp& c);                        // the gradient for src when each element of src is written or added
Var spread_to_src(const Vjp& c, const Var& grad);  // grad of the shape of the index, with zeros where src is larger

// The rules of ops like index_add: inputs x, index and a value for the positions `index` of dim `dim`.
void infer_index_write(Infer& c);
Var select_dy(Vjp& c);  // the gradient for the value

// Returns the shape of x with dim d replaced by the dims of the index.
Dims indexed_shape(const Dims& x, int d, const Dims& index);

// Returns the values of an index input as int64 positions from 0 to size - 1. A value that is not from base to
// base + size - 1 is an error of the op of `c` that names `argument`.
Var read_positions(const Rule& c, const Var& index, const char* argument, int64_t size, int64_t base);

}  // namespace pg
