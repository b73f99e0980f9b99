// Kernels that pass values to the host.
#include "tensor/cpu/register.h"
#include "tensor/effects.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg {
namespace {

void print_value(const KernelArgs& a) {
  if (effect_hooks().print) effect_hooks().print(a.attr<std::string>("label"), a.in[0]);
}

void call_value(const KernelArgs& a) {
  if (!effect_hooks().call) throw Error("tap: this program has no host to call");
  effect_hooks().call(a.attr<int64_t>("callback"), a.in[0]);
}

}  // namespace

void add_effect_kernels(Registry& r) {
  static const KernelRow kRows[] = {{"print_value", print_value}, {"call_value", call_value}};
  r.add_kernels(0, kRows);
}

}  // namespace pg
