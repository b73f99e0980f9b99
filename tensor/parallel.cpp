#include "tensor/parallel.h"

#include "tensor/error.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

thread_local Watched watched;  // of the innermost PollScope
std::atomic<int64_t> passing_polls{0};

}  // namespace

int num_threads() { return Runtime::current().threads().size(); }

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  Runtime::current().threads().run(n, grain, body);
}

PollScope::PollScope(const std::atomic<bool>* flag, Suspender* suspender) : slot_(watched), outer_(slot_) {
  slot_ = {flag, suspender};
}
PollScope::~PollScope() { slot_ = outer_; }

void poll_kernel() {
  if (!watched.flag) return;
  if (watched.flag->load(std::memory_order_relaxed) && cancel_is_due()) throw Cancelled();
  if (watched.suspender) watched.suspender->poll();
}

void delay_cancel(int64_t polls) { passing_polls = polls; }
bool cancel_is_due() { return passing_polls.load() <= 0 || passing_polls.fetch_sub(1) <= 0; }

const Watched& watched_here() { return watched; }

}  // namespace pg
