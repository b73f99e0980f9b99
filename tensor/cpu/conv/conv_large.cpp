#include "tensor/cpu/conv/conv_large.h"

#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_product.h"
#include "tensor/cpu/conv/winograd.h"

namespace pg::cpu {
namespace {

// Returns false where the choice for this part is another algorithm.
bool by_winograd(const ConvShape& s, ConvPart part, const float* a, const float* b, const float* bias, bool relu,
                 float* out) {
  const int tile = winograd_tile(s, part);
  if (tile) Winograd(s, part, tile, ImageLayout::kChannelsFirst).run(a, b, nullptr, bias, relu, out);
  return tile;
}

bool product_pays(const ConvShape& s, ConvPart part) {
  return prefers_primitive(s, part) && product_pays(s, part, ImageLayout::kChannelsFirst);
}

}  // namespace

bool prefers_unpacked(const ConvShape& s, ConvPart part) { return winograd_tile(s, part) || product_pays(s, part); }

bool prefers_large(const ConvShape& s, ConvPart part) {
  return prefers_unpacked(s, part) || prefers_primitive(s, part);
}

bool large_forward(const ConvShape& s, const float* x, const float* w, const float* bias, bool relu, float* y) {
  if (by_winograd(s, ConvPart::kForward, x, w, bias, relu, y)) return true;
  if (product_pays(s, ConvPart::kForward)) return pointwise_forward(s, x, w, bias, relu, y), true;
  return prefers_primitive(s, ConvPart::kForward) && primitive_forward(s, x, w, bias, relu, y);
}

bool large_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx) {
  if (by_winograd(s, ConvPart::kInputGradient, dy, w, nullptr, false, dx)) return true;
  if (product_pays(s, ConvPart::kInputGradient)) return pointwise_backward_data(s, dy, w, dx), true;
  return prefers_primitive(s, ConvPart::kInputGradient) && primitive_backward_data(s, dy, w, dx);
}

bool large_backward_weights(const ConvShape& s, const float* x, const float* dy, float* dw) {
  if (by_winograd(s, ConvPart::kWeightGradient, x, dy, nullptr, false, dw)) return true;
  if (product_pays(s, ConvPart::kWeightGradient)) return pointwise_backward_weights(s, x, dy, dw), true;
  return prefers_primitive(s, ConvPart::kWeightGradient) && primitive_backward_weights(s, x, dy, dw);
}

}  // namespace pg::cpu
