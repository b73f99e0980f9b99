// A body of a fused node as the tiled vector machine takes it.
#pragma once
#include <memory>

#include "graph/plan/fused.h"
#include "tensor/tile.h"

namespace pg {

// An integer divisor or exponent whose elements are looked at before anything is written.
struct DivisorCheck {
  const OpDef* op = nullptr;
  int32_t input = -1;  // of the tile body; -1: computed, by `kernel`
  std::shared_ptr<const FusedKernel> kernel;
  Type type;
};

struct TranslatedBody {
  TileBody tiles;
  std::vector<Value> constants;  // arrays, which follow the inputs of the graph among those of `tiles`
  std::vector<int32_t> outputs;  // for each output of `tiles`, its reduction last: which output of the graph it is
  std::vector<DivisorCheck> checks;
};

// Throws Error "fused: …".
TranslatedBody translate_body(const Graph& body);

// Whether the elements of a node are those of its operand, broadcast.
bool is_alias(const Node& node);

// Elements of one total when the node reduces trailing dims, else -1.
int64_t reduced_row(const Node& node, const Type& reduced);

}  // namespace pg
