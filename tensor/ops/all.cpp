#include "tensor/ops/all.h"

#include "tensor/op.h"

namespace pg {

void add_all_ops(Registry& r) {
  add_pointwise_ops(r);
  add_special_value_ops(r);
  add_math_ops(r);
  add_activation_ops(r);
  add_reduce_ops(r);
  add_shape_ops(r);
  add_slice_ops(r);
  add_join_ops(r);
  add_arrange_ops(r);
  add_combine_ops(r);
  add_stack_ops(r);
  add_diagonal_ops(r);
  add_index_ops(r);
  add_scatter_ops(r);
  add_mask_ops(r);
  add_sort_ops(r);
  add_sequence_ops(r);
  add_create_ops(r);
  add_linalg_ops(r);
  add_product_ops(r);
  add_distance_ops(r);
  add_conv_ops(r);
  add_fft_ops(r);
  add_norm_ops(r);
  add_loss_ops(r);
  add_random_ops(r);
  add_optim_ops(r);
  add_effect_ops(r);
}

}  // namespace pg
