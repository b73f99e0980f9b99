// Shared by the rules of losses.
#pragma once
#include "tensor/ops/reduce_rules.h"

namespace pg {

// Parts of the family, called by add_loss_ops.
void add_label_losses(Registry& registry);
void add_likelihood_losses(Registry& registry);
void add_margin_losses(Registry& registry);
void add_class_margin_losses(Registry& registry);
void add_ctc_loss(Registry& registry);

inline const AttrDef kHow = {"reduction", AttrKind::kString,      std::string("mean"), "none, mean or sum", false, 0,
                             0,           {"none", "mean", "sum"}};
inline const AttrDef kBase = {"index_base", AttrKind::kInt, int64_t(1), "the number of the first class", false, 0, 1};

// Whether the attribute `reduction` is mean or sum.
bool reduces(const AttrReader& c);

// Returns the loss of each sample, their sum or their mean, as the attribute `reduction` says.
Var reduced(const Rule& c, const Var& loss);

// The inputs broadcast; the result has their float dtype, and their shape or 0 dims.
void infer_elementwise(Infer& c);

// The rules of losses with a label for each element of x, input 0: input 1 has the shape of x but for dims of size 1,
// and weights broadcast to x. As in PyTorch no label is broadcast, since x of 4x1 with labels of 4 would make 4x4.
void infer_labelled(Infer& c);
Var labels_of(const Rule& c);  // input 1 in the shape of x

// max(v, 0), whose gradient at 0 is 1, as PyTorch's losses have it.
Var above_zero(const Var& v);

}  // namespace pg
