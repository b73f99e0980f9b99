// Kernels that pass values to the host, or check them.
#include <cmath>

#include "tensor/cpu/half.h"
#include "tensor/cpu/reduce/extremes_simd.h"
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

// NaN is no probability.
template <class T>
void check_probabilities_of(const KernelArgs& a) {
  const T* x = a.in[0].as<const T>();
  const int64_t n = a.in[0].numel();
  if (cpu::extreme_loops(T()).within(x, n, T(0), T(1))) return;
  int64_t at = 0;
  while (x[at] >= T(0) && x[at] <= T(1)) ++at;
  const std::string got = std::isnan(x[at]) ? "nan" : fmt::format("{}", x[at]);
  bad_argument(a.attr<std::string>("op").c_str(), a.attr<std::string>("input").c_str(), "probabilities from 0 to 1",
               fmt::format("{} at element {}", got, at + 1));
}

void check_probabilities(const KernelArgs& a) {
  cpu::run_widened(a, [](const KernelArgs& w) {
    w.in[0].dtype() == DType::kFloat64 ? check_probabilities_of<double>(w) : check_probabilities_of<float>(w);
  });
}

}  // namespace

void add_effect_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"print_value", print_value}, {"call_value", call_value}, {"check_probabilities", check_probabilities}};
  r.add_kernels(0, kRows);
}

}  // namespace pg
