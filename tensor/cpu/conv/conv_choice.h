// The algorithm of a large convolution, chosen by measurement.
#pragma once
#include <string>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/winograd.h"

namespace pg::cpu {

// Returns the outputs of a tile of Winograd's algorithm in each direction, 2 or 4, where it computes this part of the
// convolution at least a tenth faster than the direct algorithm; 0 elsewhere.
//
// The first call for a shape measures both, if neither bounds nor the environment variable PERIGEE_CONV decide. The
// process remembers the result, so that all calls of a shape have the same bits. The time is that of the calling
// thread: the choice depends neither on the number of threads nor on what else the machine does.
int winograd_tile(const ConvShape& s, ConvPart part);

// Whether this part of a convolution is a product of weights and images, which is at least a twentieth faster than the
// library's kernels. Measured and remembered likewise. Gradients have the channels first.
bool product_pays(const ConvShape& s, ConvPart part, ImageLayout layout);

// Whether Winograd's algorithm on float32 copies computes this part of a bfloat16 convolution at least a tenth faster
// than the CPU's unit of bfloat16. Measured and remembered likewise, but for AMX, whose tiles are always faster. Needs
// a unit.
bool widening_pays(const ConvShape& s, ConvPart part);

// Returns what is wrong with PERIGEE_CONV, or "".
std::string conv_choice_error();

}  // namespace pg::cpu
