// What kernels of several devices read from the arguments of a call.
#pragma once
#include <string>

#include "tensor/kernel.h"

namespace pg {

struct InputDef;

// The dims that the attribute `dim` of a reduction names, one or a list, as bits.
uint32_t dim_mask(const KernelArgs& a);
// The product of the sizes of these dims.
int64_t masked_numel(const View& v, uint32_t mask);

// The part of a contiguous `whole` that the attributes start, length, step and drop describe. A negative start counts
// from the end; a length of -1 extends to the end.
struct Slice {
  Slice(const KernelArgs& a, const View& whole);
  Dims shape, strides;
  int64_t offset = 0;
};

// How far the attributes shifts and dims of roll move each dim of a tensor, from 0 to its size - 1. The shifts of a dim
// that occurs several times add up.
Dims roll_shifts(const KernelArgs& a, const Dims& shape);

// Where the elements of dim d of a padded tensor come from, for a source dim of `size`. Element o is element o - before
// of the source if that is from first to end - 1; else the mode decides, by its rule for a source of these elements.
// Negative widths cut elements away first in mode circular. The other modes read all of the source.
struct PadRange {
  PadRange(const KernelArgs& a, int d, int rank, int64_t size);
  int64_t before = 0, first = 0, end;
};

// The definition of an input, and " of tensor 2" for the second tensor of a list.
const InputDef& definition_of(const KernelArgs& a, size_t input);
std::string place_in_list(const KernelArgs& a, size_t input);

// Returns "3", or "{2, 1}" in a shape of several dims, for the element i in row-major order, from 0.
std::string position_text(const Dims& shape, int64_t i);

}  // namespace pg
