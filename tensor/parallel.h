// Parallel loops of kernels, and the polls that let a request to stop end them.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tensor/function_ref.h"
#include "tensor/suspend.h"

namespace pg {

// Threads that a region of the current runtime may use, the caller included.
int num_threads();

// A grain is about 10 µs of work. Regions of threads that spin cost half a microsecond, and a thread that reads what
// another one has just written waits for it, so pieces of a quarter of a grain pay.
inline constexpr int64_t kGrainPicoseconds = 10'000'000;
inline constexpr int64_t kFewestSplit = kGrainPicoseconds / 2;  // less work is one piece

// A core that writes what another one has read waits about 25 ns for each line of a cache; what the other one has only
// written comes ten times as fast. So kernels give a thread the same part of an array in memory order, whether they
// read or write it. Loops on one thread between parallel ones, and shares of columns of rows below some KB, whose ends
// both cores fetch ahead, can cost more than a second thread gains.
//
// Calls body(begin, end) over a partition of [0, n) in pieces of at least a quarter of a grain (half of one on the
// threads of a host), on the threads of the current runtime; only on the calling thread if one piece is enough or a
// region is already running. Pieces do not depend on timing: the same n, grain and thread count give the same
// partition. Rethrows the first exception. Within a PollScope a piece is cut again, into calls of at most 64 grains (8
// items where the grain is 1), with a poll before each; an item that may take longer than a few milliseconds polls by
// itself.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

// The same for `n` parts of which each is worth a thread.
inline void parallel_parts(int64_t n, FunctionRef<void(int64_t begin, int64_t end)> body) { parallel_for(n, 0, body); }

// What polls look at.
struct Watched {
  const std::atomic<bool>* flag = nullptr;  // a cancel request; null: nothing is watched
  Suspender* suspender = nullptr;           // of a job, or of a region of one
};

// Within its extent poll_kernel() on this thread, and on the workers of its regions, watches `flag`, and stops where
// the slice of a job is over. Null: nothing is watched, because what is being written must not be left half done.
class PollScope {
 public:
  explicit PollScope(const std::atomic<bool>* flag, Suspender* suspender = nullptr);
  ~PollScope();
  PollScope(const PollScope&) = delete;
  PollScope& operator=(const PollScope&) = delete;

 private:
  Watched& slot_;
  Watched outer_;
};

// Throws Cancelled when the watched flag is set. The flag stays set; Context::cancellable decides about it. Waits where
// the slice of a job is over. The caller holds no lock.
void poll_kernel();

// For tests: the next `polls` polls that see a cancel request ignore it, those of kernels and Context::poll alike.
void delay_cancel(int64_t polls);
// Whether a poll that sees a cancel request must obey it. Only such polls call this.
bool cancel_is_due();

// What this thread watches.
const Watched& watched_here();
// Whether this thread runs a kernel that polls.
inline bool inside_poll_scope() { return watched_here().flag != nullptr; }

// A poll for inner loops: reads the flag once per 2^16 elements of `work` that the calls report together.
class Poller {
 public:
  void operator()(int64_t work = 1) {
    if ((done_ += work) < 1 << 16) return;
    done_ = 0;
    poll_kernel();
  }

 private:
  int64_t done_ = 0;
};

// Calls f(begin, end) for blocks of [0, n) in turn, with a poll between them.
template <class F>
void in_polled_blocks(int64_t n, int64_t block, const F& f) {
  for (int64_t begin = 0; begin < n; begin += block) {
    if (begin > 0) poll_kernel();
    f(begin, std::min(n, begin + block));
  }
}

}  // namespace pg
