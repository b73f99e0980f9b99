#include "tensor/cpu/pointwise/epilogue.h"

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/op.h"

namespace pg::cpu {

bool asks_relu(const KernelArgs& args) { return args.attr<std::string>("activation") == "relu"; }

void activate(const KernelArgs& args) {
  const std::string& name = args.attr<std::string>("activation");
  const bool tanh_form = name == "gelu_tanh";
  const OpDef& op = registry().require(tanh_form ? "gelu" : name);
  Attrs attrs = make_attrs(op);
  if (tanh_form) attrs[0] = std::string("tanh");
  if (name == "leaky_relu") attrs[0] = args.attr<double>("slope");
  run_pointwise(KernelArgs{op, args.out, args.out, attrs, args.allocate}, *find_span(op.name));
}

}  // namespace pg::cpu
