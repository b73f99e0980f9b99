// The list of op families. A family is one function that adds its rows to the registry.
#pragma once

namespace pg {
class Registry;

void add_all_ops(Registry& registry);

// One function per file in tensor/ops/.
void add_pointwise_ops(Registry& registry);
void add_special_value_ops(Registry& registry);
void add_math_ops(Registry& registry);
void add_activation_ops(Registry& registry);
void add_reduce_ops(Registry& registry);
void add_shape_ops(Registry& registry);
void add_slice_ops(Registry& registry);
void add_join_ops(Registry& registry);
void add_arrange_ops(Registry& registry);
void add_combine_ops(Registry& registry);
void add_stack_ops(Registry& registry);
void add_diagonal_ops(Registry& registry);
void add_index_ops(Registry& registry);
void add_scatter_ops(Registry& registry);
void add_mask_ops(Registry& registry);
void add_sort_ops(Registry& registry);
void add_sequence_ops(Registry& registry);
void add_create_ops(Registry& registry);
void add_linalg_ops(Registry& registry);
void add_product_ops(Registry& registry);
void add_distance_ops(Registry& registry);
void add_conv_ops(Registry& registry);
void add_fft_ops(Registry& registry);
void add_norm_ops(Registry& registry);
void add_loss_ops(Registry& registry);
void add_random_ops(Registry& registry);
void add_optim_ops(Registry& registry);
void add_effect_ops(Registry& registry);

}  // namespace pg
