#include "tensor/cpu/pointwise/epilogue.h"

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/op.h"
#include "tensor/tile.h"

namespace pg::cpu {

bool asks_relu(const KernelArgs& args) { return args.attr<std::string>("activation") == "relu"; }

namespace {

const OpDef& op_of(const std::string& activation) {
  return registry().require(activation == "gelu_tanh" ? "gelu" : activation);
}

}  // namespace

Activation::Activation(const KernelArgs& args)
    : op_(&op_of(args.attr<std::string>("activation"))), attrs_(make_attrs(*op_)), row_(*find_span(op_->name)) {
  const std::string& name = args.attr<std::string>("activation");
  if (name == "gelu_tanh") attrs_[0] = std::string("tanh");
  if (name == "leaky_relu") attrs_[0] = args.attr<double>("slope");
  if (attrs_.size()) tile_params(*op_, attrs_, params_);
}

void Activation::operator()(const View& y) const {
  const auto no_allocation = [](int, const Dims&) -> View { return {}; };
  run_pointwise(KernelArgs{*op_, {&y, 1}, {&y, 1}, attrs_, no_allocation}, row_);
}

void Activation::operator()(int64_t n, float* y) const {
  const void* const in[] = {y};
  row_.fn[int(DType::kFloat32)](n, y, in, 0, params_);
}

}  // namespace pg::cpu
