// The commit section of a plan. Private to graph/plan/.
#pragma once
#include <vector>

#include "graph/plan/lower.h"

namespace pg {

// Marks the steps that go last and may overwrite inputs of the graph, and chooses which inputs they overwrite.
// `outputs`: the values that the graph returns.
void choose_commit(Plan& plan, const std::vector<PlanValue>& values, std::vector<Draft>& drafts,
                   const std::vector<int32_t>& outputs);

// Whether no op of the body can fail.
bool is_total(const Graph& body);

// Whether the shape is that of the index space of a fused step.
bool fills_space(const Graph& body, const Dims& shape);

}  // namespace pg
