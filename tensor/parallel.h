// One pool of worker threads for all kernels. No thread exists before the first parallel region, none
// is busy between regions.
#pragma once
#include <cstdint>

#include "tensor/function_ref.h"

namespace pg {

// Threads a region may use, the caller included. Starts as the number of processors.
int num_threads();
void set_num_threads(int n);  // n >= 1; throws Error otherwise

// Calls body(begin, end) over a partition of [0, n) in pieces of at least `grain`, on the calling thread
// alone when one piece is enough or a region is already running. Pieces do not depend on timing:
// the same n, grain and thread count give the same partition. The first exception is rethrown.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

// Joins the workers. Later regions start them again.
void stop_workers();

}  // namespace pg
