// Whether gradients of a trace would leave it. See also history.h, which walks over the graph; this walks over the
// tape.
#pragma once
#include <span>

#include "tensor/function_ref.h"
#include "tensor/tape.h"

namespace pg {

struct TraceExtent {
  uint64_t start;  // the sequence at which the trace began
  uint64_t end;    // walks end at nodes with a lower sequence
  // For a node that replaces the history of a captured value: that value, else null.
  FunctionRef<const Value*(const TapeNode*)> outside;
};

// Whether a path of the tape leads from a head to one of `wanted` through nodes from before the trace, whose ops its
// graph does not hold.
bool leads_outside(std::span<const Value> heads, std::span<const Value> wanted, const TraceExtent& trace);

}  // namespace pg
