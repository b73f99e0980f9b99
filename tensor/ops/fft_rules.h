// Shared by the rules of Fourier transforms.
#pragma once
#include "tensor/rule.h"

namespace pg {

void add_window_ops(Registry& registry);  // parts of the family, called by add_fft_ops
void add_stft_ops(Registry& registry);

// `scale` times the transform along dim `dim` (from 1), or times the inverse one without its 1 / n.
Var fft_complex(const Var& x, int64_t dim, bool inverse, AttrValue scale);

// x cut or padded with zeros at the end of dim d (0-based) to n elements.
Var fitted(const Var& x, int d, int64_t n);

}  // namespace pg
