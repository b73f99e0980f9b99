// Turns a trace into the program for the types of one call. The trace is replayed through `apply`: types are inferred
// again, ops without a kernel are decomposed, and gradients come from the rules of the tape. Nothing here calls Lua.
#pragma once
#include <optional>

#include "graph/ir/builder.h"

namespace pg {

// What a call determines about an input in addition to its type.
enum class Flow : uint8_t { kNone, kWrite, kAdd, kHistory };  // no gradient; a leaf, by request; a recorded value

struct Signature {
  SmallVector<Type, 8> types;  // of the inputs
  SmallVector<Flow, 8> flows;
  bool recording = false, training = false;
  bool operator==(const Signature& other) const;
};

// A guard failure: a guard of the trace does not hold for these types, so the script has to be traced again.
class Retrace : public Error {
 public:
  using Error::Error;
};

// An op of a program rejects the types of this call, although the program has run before. The trace may contain other
// ops than the script wrote. If there is a script, tracing it again raises the error of its own call.
class Refused : public PositionedError {
 public:
  using PositionedError::PositionedError;
};

// Throws Retrace if the value lacks the property in the guard. `line` is the script's line, or empty.
void check_guard(const TypeGuard& guard, const Value& value, const std::string& line);

// Throws Retrace if the op of a trace's node has another number of outputs than the script saw.
void check_outputs(const Node& node, size_t outputs, const Graph& of);

// The joint program of one call: the outputs of the trace and, if the call is recorded, the gradients.
struct Specialized {
  Graph graph;                   // inputs: those of the trace, then one cotangent for each of `heads`
  size_t outputs = 0;            // how many of the graph's outputs are outputs of the trace
  std::vector<int32_t> heads;    // outputs of the trace that depend on inputs that gradients flow to
  std::vector<int32_t> wanted;   // inputs whose gradients are outputs of the graph, in that order
  std::vector<int32_t> reached;  // inputs that the history of the heads goes back to, with or without a gradient
};

// `leaves`: as for Histories::inputs_behind. Those among the outputs are no heads, since gradients flow to them: they
// count as inputs of `wanted` and `reached`. Throws Retrace on a guard failure, or the error of an op with its script
// line.
Specialized specialize(const Graph& trace, const Signature& signature, std::span<const int32_t> leaves = {});

// The joint graph, split in two. The outputs of `forward` are those of the trace, then the residuals. The inputs of
// `backward` are the `kept` inputs of the joint graph, then the residuals, then the cotangents. Its outputs are the
// gradients.
struct Split {
  Graph forward, backward;
  std::vector<int32_t> kept;
};
// With `recompute` there are no residuals: backward computes everything again from inputs (rematerialization). Loops
// with stacks of unknown length are always run again.
Split split(const Specialized& joint, bool recompute = false);

}  // namespace pg
