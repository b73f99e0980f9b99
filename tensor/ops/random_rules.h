// Shared by the rules of random ops.
#pragma once
#include "tensor/rule.h"

namespace pg {

// Parts of the family, called by add_random_ops.
void add_dropout_ops(Registry& registry);
void add_random_fill_ops(Registry& registry);

inline AttrDef generator_attr() {
  return {.name = "generator", .kind = AttrKind::kRandom, .doc = "a pg.Generator; the default one when nil"};
}

}  // namespace pg
