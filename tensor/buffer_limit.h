// For tests: a limit of what one tensor may take.
#pragma once
#include <cstddef>

namespace pg {

// Requests of the calling thread for more than this many bytes fail as those do for which there is no memory; 0 lifts
// the limit.
void limit_allocation(size_t bytes);

}  // namespace pg
