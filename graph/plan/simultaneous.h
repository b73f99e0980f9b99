// Which steps of a plan may run at once. Private to graph/plan/.
#pragma once
#include "graph/plan/plan.h"

namespace pg {

// Sets Step::at_once of all steps. The storages have their places.
void find_simultaneous(Plan& plan);

// Whether step b neither reads nor writes memory that step a writes, nor the other way round.
bool apart(const Plan& plan, const Step& a, const Step& b);

}  // namespace pg
