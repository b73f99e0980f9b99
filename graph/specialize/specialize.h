// From a trace to the program of one call's types. The trace is replayed through `apply`: types are inferred anew, ops
// without a kernel decompose, gradients come out of the tape's own rules. Nothing here enters Lua.
#pragma once
#include <optional>

#include "graph/ir/builder.h"

namespace pg {

// What a call decides about an input besides its type.
enum class Flow : uint8_t { kNone, kWrite, kAdd, kHistory };  // no gradient; a leaf by its request; a recorded value

struct Signature {
  SmallVector<Type, 8> types;  // of the inputs
  SmallVector<Flow, 8> flows;
  bool recording = false, training = false;
  bool operator==(const Signature& other) const;
};

// A guard of the trace that does not hold for these types: the script has to be traced again.
class Retrace : public Error {
 public:
  using Error::Error;
};

// An op of a program that has run refuses the types of this call. The trace may hold other ops than the script wrote:
// where there is a script, tracing it again raises what its own call says.
class Refused : public PositionedError {
 public:
  using PositionedError::PositionedError;
};

// Throws Retrace where the value does not answer as the guard says; `line` is the script's, or empty.
void check_guard(const TypeGuard& guard, const Value& value, const std::string& line);

// Throws Retrace where the op of a trace's node gives another number of outputs than the script got.
void check_outputs(const Node& node, size_t outputs, const Graph& of);

// The joint program of one call: `outputs` of the trace, then, where the call is recorded, gradients.
struct Specialized {
  Graph graph;                   // inputs of the trace, then one cotangent for each of `heads`
  size_t outputs = 0;            // how many of the graph's outputs are the trace's
  std::vector<int32_t> heads;    // trace outputs that depend on inputs gradients flow to
  std::vector<int32_t> wanted;   // inputs with a gradient among the outputs, in this order
  std::vector<int32_t> reached;  // inputs that the history of the heads goes back to, with a gradient or without
};

// Throws Retrace, or the error of an op with its script line.
Specialized specialize(const Graph& trace, const Signature& signature);

// The joint graph cut in two. forward: the trace's outputs, then the residuals. backward: inputs are `kept` inputs of
// the joint graph, then the residuals, then the cotangents; outputs are the gradients.
struct Split {
  Graph forward, backward;
  std::vector<int32_t> kept;
};
// recompute: nothing is kept but inputs. Loops that may take any number of steps are run again in any case.
Split split(const Specialized& joint, bool recompute = false);

}  // namespace pg
