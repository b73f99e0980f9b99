#include "tensor/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/processor.h"

namespace pg {
namespace {

thread_local const std::atomic<bool>* watched = nullptr;  // the flag of the innermost PollScope
std::atomic<int64_t> passing_polls{0};

// [begin, end) in one call, or in short ones where someone may ask to stop.
void run_piece(FunctionRef<void(int64_t, int64_t)> body, int64_t begin, int64_t end, int64_t grain) {
  if (!watched) return body(begin, end);
  const int64_t step = grain > 1 ? grain > INT64_MAX / 64 ? INT64_MAX : grain * 64 : 8;
  for (int64_t at = begin; at < end;) {
    poll_kernel();
    const int64_t next = end - at > step ? at + step : end;
    body(at, next);
    at = next;
  }
}

struct Region {
  FunctionRef<void(int64_t, int64_t)> body;
  int64_t n, pieces, grain;
  const std::atomic<bool>* flag;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> left;
  std::exception_ptr error;
  std::mutex error_lock;
  int workers_inside = 0;  // guarded by Pool::lock

  int64_t start(int64_t i) const { return n / pieces * i + std::min(i, n % pieces); }

  void work() {
    const PollScope scope(flag);
    for (int64_t i; (i = next.fetch_add(1)) < pieces;) {
      try {
        run_piece(body, start(i), start(i + 1), grain);
      } catch (...) {
        std::lock_guard hold(error_lock);
        if (!error) error = std::current_exception();
      }
      left.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
};

class Pool {
 public:
  std::mutex region_lock;  // held by the thread that runs a region
  std::atomic<int> wanted{int(std::max(1u, std::thread::hardware_concurrency()))};

  void run(Region& region) {
    {
      std::lock_guard hold(lock_);
      grow();
      region_ = &region;
      ++generation_;
    }
    wake_.notify_all();
    region.work();
    wait_until_done(region);
    if (region.error) std::rethrow_exception(region.error);
  }

  void stop() {
    {
      std::lock_guard hold(lock_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    stopping_ = false;
  }

 private:
  // The caller can do all the work, so a thread that cannot be had is no failure. Workers take no signals: a handler of
  // the host runs on a thread of the host.
  void grow() {
    if (int(threads_.size()) + 1 >= wanted) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      while (int(threads_.size()) + 1 < wanted) threads_.emplace_back([this] { worker(); });
    } catch (const std::system_error&) {}
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void wait_until_done(Region& region) {
    for (int spin = 0; region.left.load(std::memory_order_acquire) > 0 && spin < 20000; ++spin) spin_pause();
    std::unique_lock hold(lock_);
    region_ = nullptr;
    done_.wait(hold, [&] { return region.left == 0 && region.workers_inside == 0; });
  }

  void worker() {
    uint64_t seen = 0;
    std::unique_lock hold(lock_);
    while (true) {
      wake_.wait(hold, [&] { return stopping_ || (region_ && generation_ != seen); });
      if (stopping_) return;
      Region* region = region_;
      seen = generation_;
      ++region->workers_inside;
      hold.unlock();
      region->work();
      hold.lock();
      --region->workers_inside;
      done_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Region* region_ = nullptr;
  uint64_t generation_ = 0;
  bool stopping_ = false;
};

// Set on the thread that runs a region, which may not lock region_lock again.
thread_local bool inside_region = false;

// Leaked on purpose: workers may outlive static destruction when a host exits without closing us.
Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

}  // namespace

int num_threads() { return pool().wanted; }

void set_num_threads(int n) {
  if (n < 1 || n > 1024) bad_argument("set_num_threads", "n", "a whole number from 1 to 1024", std::to_string(n));
  if (n < pool().wanted) stop_workers();
  pool().wanted = n;
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::min<int64_t>(num_threads(), n / grain);
  if (pieces <= 1 || inside_region) return run_piece(body, 0, n, grain);
  std::unique_lock hold(pool().region_lock, std::try_to_lock);
  if (!hold) return run_piece(body, 0, n, grain);
  struct Inside {
    Inside() { inside_region = true; }
    ~Inside() { inside_region = false; }
  } inside;
  Region region{body, n, pieces, grain, watched, {}, {pieces}, {}, {}};
  pool().run(region);
}

PollScope::PollScope(const std::atomic<bool>* flag) : slot_(watched), outer_(slot_) { slot_ = flag; }
PollScope::~PollScope() { slot_ = outer_; }

void poll_kernel() {
  if (watched && watched->load(std::memory_order_relaxed) && cancel_is_due()) throw Cancelled();
}

void delay_cancel(int64_t polls) { passing_polls = polls; }
bool cancel_is_due() { return passing_polls.load() <= 0 || passing_polls.fetch_sub(1) <= 0; }

bool inside_poll_scope() { return watched != nullptr; }

void stop_workers() {
  std::lock_guard hold(pool().region_lock);
  pool().stop();
}

}  // namespace pg
