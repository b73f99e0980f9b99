// Which steps of a plan a device can run as programs (graph/exec/captured.cpp).
#pragma once
#include "graph/plan/plan.h"

namespace pg {

// Sets ControlStep::repeats and nests, after its bodies.
void choose_form(ControlStep& control);

// Sets Plan::segments and Plan::staged, and Step::varies and work of the steps in segments.
void find_segments(Plan& plan);

}  // namespace pg
