// Which steps of a plan a device can run as programs (graph/exec/exec.cpp: run_captured).
#pragma once
#include "graph/plan/plan.h"

namespace pg {

// Sets Plan::segments, and Step::varies of the steps in them.
void find_segments(Plan& plan);

}  // namespace pg
