// Convolutions and pooling of images whose channels are the last dim: (N, spatial..., C). The pass `layout` creates
// these ops; scripts cannot. An op has the inputs and attributes of its form for (N, C, spatial...), and computes it.
#include "tensor/context.h"
#include "tensor/ops/conv_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

using PlainFn = const OpDef& (*)(int rank);  // returns the form for (N, C, spatial...) with `rank` dims

const OpDef& plain_conv(int rank) {
  return rank == 3 ? op_named<"conv1d">() : rank == 4 ? op_named<"conv2d">() : op_named<"conv3d">();
}
const OpDef& plain_conv_act(int) { return op_named<"conv_act">(); }
const OpDef& plain_conv_by_input(int) { return op_named<"conv_by_input">(); }
const OpDef& plain_max_pool(int) { return op_named<"max_pool">(); }
const OpDef& plain_max_pool_backward(int) { return op_named<"max_pool_backward">(); }
const OpDef& plain_avg_pool(int rank) {
  return rank == 3 ? op_named<"avg_pool1d">() : rank == 4 ? op_named<"avg_pool2d">() : op_named<"avg_pool3d">();
}

// The types of the outputs of the plain form. The first `images` inputs are images.
SmallVector<Type, 2> infer_plain(Infer& c, const OpDef& plain, size_t images) {
  SmallVector<Value, 4> inputs(c.inputs());
  for (size_t i = 0; i < images; ++i) {
    Type image = c.type(i);
    image.shape = channels_first(image.shape);
    inputs[i] = Value(Array::make(image));
  }
  SmallVector<Type, 2> types;
  infer_types(plain, {inputs.data(), inputs.size()}, c.attrs(), types);
  return types;
}

void check_ranks(Infer& c, const char* told) {
  if (c.rank(0) < 3 || c.rank(0) > 5) c.bad_input(0, "3 to 5 dims (batch, 1 to 3 spatial, channels)");
  if (c.count() > 1 && c.rank(1) != c.rank(0)) c.bad_input(1, fmt::format("{} dims", c.rank(0)));
  if (told && int(c.attr<Ints>(told).size()) != c.rank(0) - 2)
    c.bad_attr(told, fmt::format("{} numbers", c.rank(0) - 2));
}

// The first kImages inputs and all outputs are images.
template <PlainFn kPlain, size_t kImages>
void infer_last(Infer& c) {
  const OpDef& plain = kPlain(c.rank(0));
  check_ranks(c, kPlain == plain_max_pool ? "kernel_size" : plain.attr_index("size") >= 0 ? "size" : nullptr);
  for (const Type& image : infer_plain(c, plain, kImages)) c.output(image.dtype, channels_last(image.shape));
}

void infer_conv_by_weight(Infer& c) {
  check_ranks(c, "size");
  const Type weight = infer_plain(c, op_named<"conv_by_weight">(), 2)[0];
  c.output(weight.dtype, weight.shape);
}

Var permuted(const Var& x, bool last) {
  Dims dims;
  for (int d = 0; d < x.rank(); ++d) dims.push_back(d);
  return call<"permute">(x, {{"dims", user_dims(last ? channels_last(dims) : channels_first(dims))}});
}

template <PlainFn kPlain, size_t kImages>
std::vector<Var> decompose_last(Rule& c) {
  SmallVector<Value, 4> inputs;
  for (size_t i = 0; i < c.count(); ++i) inputs.push_back(i < kImages ? permuted(c.in(i), false).value() : c.input(i));
  std::vector<Var> out;
  for (Value& image : apply(c.context(), kPlain(c.in(0).rank()), {inputs.data(), inputs.size()}, c.attrs()))
    out.push_back(permuted(c.wrap(std::move(image)), true));
  return out;
}

template <PlainFn kPlain, size_t kImages = 1>
OpDef last(const char* name, const char* doc, const OpDef& plain) {
  return {.name = name,
          .doc = doc,
          .inputs = plain.inputs,
          .attrs = plain.attrs,
          .outputs = plain.outputs,
          .infer = infer_last<kPlain, kImages>,
          .decompose = decompose_last<kPlain, kImages>,
          .traits = kHidden | (plain.traits & kTotal),
          .multiply_adds = plain.multiply_adds};
}

}  // namespace

void add_channels_last_ops(Registry& r) {
  std::vector<OpDef> rows = {
      last<plain_conv>("conv_last", "A convolution of (N, spatial..., C).", r.require("conv2d")),
      last<plain_conv_act>("conv_act_last", "A convolution of (N, spatial..., C) and an activation.",
                           r.require("conv_act")),
      last<plain_conv_by_input>("conv_by_input_last", "The gradient of conv_last by its input.",
                                r.require("conv_by_input")),
      last<plain_max_pool>("max_pool_last", "Max pooling of (N, spatial..., C).", r.require("max_pool")),
      last<plain_max_pool_backward, 2>("max_pool_backward_last", "The gradient of max_pool_last.",
                                       r.require("max_pool_backward")),
      last<plain_avg_pool>("avg_pool_last", "Mean pooling of (N, spatial..., C).", r.require("avg_pool2d")),
  };
  rows[0].with_epilogue = op_named<"conv_act_last">;
  rows[4].accepts = "max_pool_last";
  OpDef by_weight =
      last<plain_conv_by_input>("conv_by_weight_last", "The gradient of conv_last by its weights, (O, I, spatial...).",
                                r.require("conv_by_weight"));
  by_weight.infer = infer_conv_by_weight;
  by_weight.decompose = [](Rule& c) -> std::vector<Var> {
    return {call_like<"conv_by_weight">(c, {permuted(c.in(0), false), permuted(c.in(1), false)})};
  };
  rows.push_back(by_weight);
  r.add(rows);
}

}  // namespace pg
