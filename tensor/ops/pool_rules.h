// Shared by the rules of pooling.
#pragma once
#include "tensor/ops/conv_rules.h"
#include "tensor/rule.h"

namespace pg {

// Parts of the family, called by add_pool_ops.
void add_adaptive_pool_ops(Registry& registry);
void add_unpool_ops(Registry& registry);

inline constexpr double kMostWindow = 1 << 30;
inline const AttrDef kKernel = {"kernel_size", AttrKind::kInts, {}, "size of the window", false, 1, kMostWindow};
inline const AttrDef kStride = {"stride", AttrKind::kInts, {}, "step of the window; the kernel size by default", true,
                                1,        kMostWindow};
inline const AttrDef kPadding = {
    "padding", AttrKind::kInts, Ints{0}, "padding on both sides, at most half the window", false, 0, kMostWindow};
inline const AttrDef kSize = {"size", AttrKind::kInts, {}, "spatial sizes of the result"};
inline const AttrDef kReturnIndices = {"return_indices", AttrKind::kBool, false, "also return the positions"};

// Throws unless input 1 is (batch, channels, `dims` spatial) or (channels, spatial).
void require_planes(Infer& c, int dims);

Dims with_tail(Dims shape, const Ints& size);  // replaces the last sizes

// Maxima and their positions in their planes, int32 or int64, counted from 0.
struct MaxPool {
  Var out, index;
};
MaxPool max_pool_of(const Var& x, const Ints& kernel, const AttrValue& stride, const AttrValue& padding,
                    const AttrValue& dilation, const AttrValue& ceil_mode);

// The outputs of an op with the attributes return_indices and index_base.
std::vector<Var> pooled(const Rule& c, const MaxPool& pool);

}  // namespace pg
