// Local response normalization, a composition.
#include "tensor/ops/norm_rules.h"

namespace pg {
namespace {

void infer(Infer& c) {
  if (c.rank(0) < 3) c.bad_input(0, "at least 3 dims (batch, channels, spatial)");
  c.outputs.push_back(c.type(0));
}

// The mean of the squares of `size` channels around each is an average pooling over the channels, which are padded by
// zeros: size / 2 of them in front.
std::vector<Var> decompose(Rule& c) {
  const Var x = c.in(0);
  const Dims& shape = x.shape();
  if (x.numel() == 0) return {x};
  const int64_t size = c.attr<int64_t>("size"), spatial = x.numel() / (shape[0] * shape[1]);
  const Var squares = reshaped(call<"square">(x), {shape[0], 1, shape[1], spatial});
  const Var wide = call<"pad">(squares, {{"pad", Ints{0, 0, size / 2, (size - 1) / 2}}});
  const Var mean = call<"avg_pool2d">(wide, {{"kernel_size", Ints{size, 1}}, {"stride", Ints{1}}});
  const Var divisor =
      call<"pow">(reshaped(mean, shape) * c.attr<double>("alpha") + c.attr<double>("k"), Var(c.attr<double>("beta")));
  return {x / divisor};
}

}  // namespace

void add_response_norm_op(Registry& r) {
  const OpDef rows[] = {
      {.name = "local_response_norm",
       .doc = "x / (k + alpha m)^beta with the mean m of the squares of `size` neighboring channels, those outside "
              "counted as 0. Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012.",
       .example = "return pg.local_response_norm(pg.ones(1, 4, 2), 3)",
       .inputs = {kX},
       .attrs = {{"size", AttrKind::kInt, {}, "number of channels", false, 1, 1 << 30},
                 {"alpha", AttrKind::kFloat, 1e-4, "factor of the mean"},
                 {"beta", AttrKind::kFloat, 0.75, "the exponent"},
                 {"k", AttrKind::kFloat, 1.0, "added to the mean"}},
       .infer = infer,
       .decompose = decompose,
       .traits = kWidens},
  };
  r.add(rows);
}

}  // namespace pg
