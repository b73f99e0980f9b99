#include "tensor/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>

#include "tensor/error.h"
#include "tensor/context.h"
#include "tensor/parallel.h"
#include "tensor/processor.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

thread_local bool inside_region = false;  // a nested region runs on its calling thread

// Runs [begin, end) in one call, or in short ones with polls between them when a cancel flag is watched.
void run_piece(FunctionRef<void(int64_t, int64_t)> body, int64_t begin, int64_t end, int64_t grain) {
  if (!inside_poll_scope()) return body(begin, end);
  const int64_t step = grain > 1 ? grain > INT64_MAX / 64 ? INT64_MAX : grain * 64 : 8;
  for (int64_t at = begin; at < end;) {
    poll_kernel();
    const int64_t next = end - at > step ? at + step : end;
    body(at, next);
    at = next;
  }
}

}  // namespace

struct ThreadPool::Region {
  FunctionRef<void(int64_t, int64_t)> body;
  int64_t n, pieces, grain;
  const std::atomic<bool>* flag;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> left;
  std::exception_ptr error;
  std::mutex error_lock;
  int workers_inside = 0;  // guarded by the pool's lock

  int64_t start(int64_t i) const { return n / pieces * i + std::min(i, n % pieces); }

  // Runs piece i. Its error becomes the region's if it is the first.
  void run(int64_t i) {
    const ScopedFlag inside(inside_region, true);
    const PollScope scope(flag);
    try {
      run_piece(body, start(i), start(i + 1), grain);
    } catch (...) {
      std::lock_guard hold(error_lock);
      if (!error) error = std::current_exception();
    }
    left.fetch_sub(1, std::memory_order_acq_rel);
  }
  void run_all() {
    for (int64_t i; (i = next.fetch_add(1)) < pieces;) run(i);
  }
};

ThreadPool::ThreadPool(Runtime& runtime, int threads, const JobSystem& jobs)
    : runtime_(runtime),
      jobs_(jobs),
      size_(threads ? threads : int(std::max(1u, std::thread::hardware_concurrency()))) {}

void ThreadPool::resize(int64_t n) {
  if (n < 1 || n > kMaxThreads)
    bad_argument("set_num_threads", "n", "a whole number from 1 to 1024", std::to_string(n));
  if (n < size()) stop();
  size_ = int(n);
}

void ThreadPool::stop() {
  std::lock_guard regions(region_lock_);
  {
    std::lock_guard hold(lock_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
  stopping_ = false;
}

void ThreadPool::run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::min<int64_t>(size(), n / grain);
  if (pieces <= 1 || inside_region) return run_piece(body, 0, n, grain);
  std::unique_lock hold(region_lock_, std::defer_lock);
  if (!jobs_.parallel_for && !hold.try_lock()) return run_piece(body, 0, n, grain);
  Region region{body, n, pieces, grain, poll_flag(), {}, {pieces}, {}, {}};
  if (jobs_.parallel_for) {
    struct Job {
      Region& region;
      Runtime& runtime;
    } job{region, runtime_};
    const auto task = [](void* arg, size_t i) {
      const Job& job = *static_cast<Job*>(arg);
      const ScopedRuntime scope(job.runtime);
      job.region.run(int64_t(i));
    };
    jobs_.parallel_for(jobs_.user, size_t(pieces), task, &job);
  } else {
    run_on_workers(region);
  }
  if (region.error) std::rethrow_exception(region.error);
}

void ThreadPool::run_on_workers(Region& region) {
  {
    std::lock_guard hold(lock_);
    grow();
    region_ = &region;
    ++generation_;
  }
  wake_.notify_all();
  region.run_all();
  wait_until_done(region);
}

// A thread that cannot be started is no error: the caller can do all the work.
void ThreadPool::grow() {
  if (int(threads_.size()) + 1 >= size()) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (int(threads_.size()) + 1 < size()) threads_.emplace_back([this] { worker(); });
  } catch (const std::system_error&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ThreadPool::wait_until_done(Region& region) {
  for (int spin = 0; region.left.load(std::memory_order_acquire) > 0 && spin < 20000; ++spin) spin_pause();
  std::unique_lock hold(lock_);
  region_ = nullptr;
  done_.wait(hold, [&] { return region.left == 0 && region.workers_inside == 0; });
}

void ThreadPool::worker() {
  const ScopedRuntime scope(runtime_);
  uint64_t seen = 0;
  std::unique_lock hold(lock_);
  while (true) {
    wake_.wait(hold, [&] { return stopping_ || (region_ && generation_ != seen); });
    if (stopping_) return;
    Region* region = region_;
    seen = generation_;
    ++region->workers_inside;
    hold.unlock();
    region->run_all();
    hold.lock();
    --region->workers_inside;
    done_.notify_all();
  }
}

}  // namespace pg
