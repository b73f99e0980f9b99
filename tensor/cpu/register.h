// The list of the CPU's kernels.
#pragma once

namespace pg {
class Registry;

void add_all_cpu_kernels(Registry& registry);

// One function per file tensor/cpu/*/kernels_*.cpp.
void add_pointwise_kernels(Registry& registry);
void add_reduce_kernels(Registry& registry);
void add_distance_kernels(Registry& registry);
void add_shape_kernels(Registry& registry);
void add_index_kernels(Registry& registry);
void add_scatter_kernels(Registry& registry);
void add_mask_kernels(Registry& registry);
void add_select_kernels(Registry& registry);
void add_sort_kernels(Registry& registry);
void add_sequence_kernels(Registry& registry);
void add_sample_kernels(Registry& registry);
void add_bag_kernels(Registry& registry);
void add_linalg_kernels(Registry& registry);
void add_attention_kernels(Registry& registry);
void add_solver_kernels(Registry& registry);
void add_factor_kernels(Registry& registry);
void add_conv_kernels(Registry& registry);
void add_unfold_kernels(Registry& registry);
void add_resample_kernels(Registry& registry);
void add_fft_kernels(Registry& registry);
void add_channels_last_kernels(Registry& registry);
void add_norm_kernels(Registry& registry);
void add_batch_norm_kernels(Registry& registry);
void add_loss_kernels(Registry& registry);
void add_ctc_kernels(Registry& registry);
void add_create_kernels(Registry& registry);
void add_random_kernels(Registry& registry);
void add_multinomial_kernel(Registry& registry);
void add_optim_kernels(Registry& registry);
void add_effect_kernels(Registry& registry);

}  // namespace pg
