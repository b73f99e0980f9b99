// Translates the body of a fused node into the form of the tiled vector machine.
#pragma once
#include <memory>
#include <optional>

#include "graph/ir/ir.h"
#include "tensor/tile.h"

namespace pg {

class FusedKernel;

// An integer divisor or exponent that is checked before anything is written.
struct DivisorCheck {
  const OpDef* op = nullptr;
  int32_t input = -1;  // input of the tile body; -1: `kernel` computes the divisor
  std::shared_ptr<const FusedKernel> kernel;
  Type type;
};

// The part of an output that one operand of a join fills.
struct JoinedPart {
  Type type;
  Dims strides;
  int64_t offset = 0;  // bytes
};

struct TranslatedBody {
  TileBody tiles;
  std::vector<Value> constants;                  // arrays; among the inputs of `tiles` they follow those of the graph
  std::vector<int32_t> outputs;                  // by output of `tiles`, reductions last: the output of the graph
  std::vector<std::optional<JoinedPart>> parts;  // by output of `tiles`: the part of that output, or all of it
  std::vector<DivisorCheck> checks;
};

// Throws Error "fused: …" for a body that breaks the rules of FusedKernel.
TranslatedBody translate_body(const Graph& body);

// Whether the elements of the node are those of its operand, broadcast.
bool is_alias(const Node& node);

// Whether the op places its operands side by side: cat or stack.
bool is_join(const Node& node);

// Returns the number of elements that one result takes if the node reduces trailing dims, else -1.
int64_t reduced_row(const Node& node, const Type& reduced);

}  // namespace pg
