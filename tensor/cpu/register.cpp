#include "tensor/cpu/register.h"

#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/cpu/isa.h"
#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/settings.h"

namespace pg {

void check_settings() {
  for (const std::string& wrong : {cpu::isa_error(), cpu::conv_choice_error()})
    if (!wrong.empty()) throw Error(wrong);
  for (const char* name : kSwitches) {
    const std::string_view text = setting(name) ? setting(name) : "";
    if (!text.empty() && text != "0" && text != "1") throw Error(wrong_setting(name, "0 or 1"));
  }
}

const char* cpu_instruction_set() { return cpu::isa_name(cpu::isa()); }

void add_all_cpu_kernels(Registry& r) {
  add_pointwise_kernels(r);
  add_reduce_kernels(r);
  add_distance_kernels(r);
  add_shape_kernels(r);
  add_index_kernels(r);
  add_scatter_kernels(r);
  add_mask_kernels(r);
  add_select_kernels(r);
  add_sort_kernels(r);
  add_sequence_kernels(r);
  add_sample_kernels(r);
  add_bag_kernels(r);
  add_linalg_kernels(r);
  add_attention_kernels(r);
  add_fft_kernels(r);
  add_solver_kernels(r);
  add_factor_kernels(r);
  add_conv_kernels(r);
  add_unfold_kernels(r);
  add_resample_kernels(r);
  add_channels_last_kernels(r);
  add_norm_kernels(r);
  add_batch_norm_kernels(r);
  add_loss_kernels(r);
  add_ctc_kernels(r);
  add_create_kernels(r);
  add_random_kernels(r);
  add_multinomial_kernel(r);
  add_optim_kernels(r);
  add_effect_kernels(r);
}

}  // namespace pg
