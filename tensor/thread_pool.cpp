#include "tensor/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/processor.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

constexpr uint32_t kCallerSleeps = 1u << 31;

thread_local bool inside_region = false;  // a nested region runs on its calling thread

int processors() { return int(std::max(1u, std::thread::hardware_concurrency())); }

// The number of forks between the first process and this one. A child has none of its parent's threads.
std::atomic<uint32_t> forks{0};
void count_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)registered;
}

// Calls `ready` until it returns true, for at most `us` microseconds. Returns its last result.
template <class Ready>
bool spin_until(int us, Ready ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

// The items between two polls of a piece.
int64_t poll_step(int64_t grain) { return grain > 1 ? grain > INT64_MAX / 64 ? INT64_MAX : grain * 64 : 8; }

// The same for jobs, which stop at polls: fewer items after a step that took long.
class JobSteps {
 public:
  explicit JobSteps(int64_t grain) : step_(poll_step(grain)) {}
  // Runs the next step of [at, end). Returns where it has ended.
  int64_t operator()(FunctionRef<void(int64_t, int64_t)> body, int64_t at, int64_t end) {
    const int64_t next = end - at > step_ ? at + step_ : end;
    const auto start = std::chrono::steady_clock::now();
    body(at, next);
    if (std::chrono::steady_clock::now() - start > kLong) step_ = std::max<int64_t>(step_ / 2, 1);
    return next;
  }

 private:
  static constexpr std::chrono::microseconds kLong{150};
  int64_t step_;
};

// Runs [begin, end) in one call, or in short ones with polls between them when a cancel flag is watched.
void run_piece(FunctionRef<void(int64_t, int64_t)> body, int64_t begin, int64_t end, int64_t grain) {
  if (!inside_poll_scope()) return body(begin, end);
  if (watched_here().suspender) {
    JobSteps steps(grain);
    for (int64_t at = begin; at < end; at = steps(body, at, end)) poll_kernel();
    return;
  }
  const int64_t step = poll_step(grain);
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
  bool small;
  Watched watched;  // by the caller
  std::exception_ptr error = nullptr;
  std::mutex error_lock = {};
  std::vector<int64_t> done = {};   // of a job: the items of each piece that are done
  std::atomic<bool> pauses{false};  // the slice of the job is over

  int64_t start(int64_t i) const { return n / pieces * i + std::min(i, n % pieces); }
  bool is_done() const {
    for (int64_t i = 0; i < int64_t(done.size()); ++i)
      if (start(i) + done[size_t(i)] < start(i + 1)) return false;
    return true;
  }

  // Runs piece i. Its error becomes the region's if it is the first.
  void run(int64_t i) {
    const ScopedFlag inside(inside_region, true);
    const PollScope scope(watched.flag);
    try {
      if (watched.suspender)
        run_until_pause(i);
      else
        run_piece(body, start(i), start(i + 1), grain);
    } catch (...) {
      std::lock_guard hold(error_lock);
      if (!error) error = std::current_exception();
    }
  }

 private:
  // Runs at least one step of the piece, and the rest unless the slice ends.
  void run_until_pause(int64_t i) {
    JobSteps steps(grain);
    const int64_t end = start(i + 1);
    for (int64_t at = start(i) + done[size_t(i)]; at < end;) {
      poll_kernel();
      at = steps(body, at, end);
      done[size_t(i)] = at - start(i);
      if (at < end && watched.suspender->due()) pauses = true;
      if (pauses) return;
    }
  }
};

struct alignas(64) ThreadPool::Worker {
  explicit Worker(int64_t i) : index(i) {}
  // Wakes the thread if it sleeps, or if it is about to and has seen nothing to do. The caller has changed what
  // next_region looks at.
  void rouse() {
    if (asleep.load() && asleep.exchange(false)) wake.release();
  }

  const int64_t index;                   // of its pieces
  std::atomic<Region*> region{nullptr};  // a region whose piece nobody has begun
  std::atomic<bool> asleep{false};
  std::binary_semaphore wake{0};
  std::thread thread;
};

ThreadPool::ThreadPool(Runtime& runtime, int threads, int spin_us, const JobSystem& jobs)
    : runtime_(runtime), jobs_(jobs), spin_us_(spin_us), size_(threads ? threads : processors()) {}

ThreadPool::~ThreadPool() {
  if (forks_ != forks) abandon();
  stop();
}

// Forgets the workers of the parent process: they do not exist here, so nothing may touch them.
void ThreadPool::abandon() {
  for (auto& worker : workers_) (void)worker.release();
  workers_.clear();
}

void ThreadPool::resize(int64_t n) {
  if (n < 1 || n > kMaxThreads)
    bad_argument("set_num_threads", "n", "a whole number from 1 to 1024", std::to_string(n));
  if (n < size()) stop();
  size_ = int(n);
}

void ThreadPool::stop() {
  if (forks_ != forks) return;  // a child process; the lock may be held by a thread that it does not have
  std::lock_guard regions(region_lock_);
  stopping_ = true;
  for (const auto& worker : workers_) worker->rouse();
  for (const auto& worker : workers_) worker->thread.join();
  workers_.clear();
  stopping_ = false;
}

void ThreadPool::run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const bool small = grain > 0 && n / grain < kWorthWaking;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::min<int64_t>(size(), n / grain);
  if (pieces <= 1 || inside_region) return run_piece(body, 0, n, grain);
  Region region{body, n, pieces, grain, small, watched_here()};
  if (!region.watched.suspender) return run_region(region);
  region.done.resize(size_t(pieces));
  while (true) {
    run_region(region);
    if (region.is_done()) return;
    region.pauses = false;
    region.watched.suspender->suspend();
  }
}

// Runs the pieces of the region, of a job at least a part of each.
void ThreadPool::run_region(Region& region) {
  std::unique_lock hold(region_lock_, std::defer_lock);
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
    jobs_.parallel_for(jobs_.user, size_t(region.pieces), task, &job);
  } else if (hold.try_lock()) {
    run_on_workers(region);
  } else if (region.watched.suspender) {
    for (int64_t i = 0; i < region.pieces; ++i) region.run(i);
  } else {
    return run_piece(region.body, 0, region.n, region.grain);
  }
  if (region.error) std::rethrow_exception(region.error);
}

void ThreadPool::run_on_workers(Region& region) {
  grow();
  const int64_t helpers = std::min(region.pieces - 1, int64_t(workers_.size()));
  const bool wakes = !region.small || ++unwoken_ >= kPatience;
  if (wakes) unwoken_ = 0;
  pending_.store(uint32_t(helpers), std::memory_order_relaxed);
  for (int64_t i = 0; i < helpers; ++i) {
    Worker& worker = *workers_[size_t(i)];
    worker.region.store(&region);
    if (wakes || !worker.asleep.load()) worker.rouse();
  }
  region.run(0);
  for (int64_t i = helpers + 1; i < region.pieces; ++i) region.run(i);
  for (int64_t i = helpers; i-- > 0;) {
    if (!workers_[size_t(i)]->region.exchange(nullptr)) continue;
    pending_.fetch_sub(1, std::memory_order_relaxed);
    region.run(i + 1);
  }
  wait_until_done();
}

// A thread that cannot be started is no error: the caller can do all the work.
void ThreadPool::grow() {
  if (forks_ != forks) abandon();
  if (int(workers_.size()) + 1 >= size()) return;
  count_forks();
  forks_ = forks.load();
  spins_ = size() <= processors();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (int(workers_.size()) + 1 < size()) {
      auto worker = std::make_unique<Worker>(int64_t(workers_.size()) + 1);
      worker->thread = std::thread([this, w = worker.get()] { work(*w); });
      workers_.push_back(std::move(worker));
    }
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Returns when no worker is inside the region any more.
void ThreadPool::wait_until_done() {
  const auto is_done = [&] { return pending_.load(std::memory_order_acquire) == 0; };
  if (spin_until(spins_ ? 100 : 0, is_done)) return;
  if (pending_.fetch_add(kCallerSleeps, std::memory_order_acq_rel) != 0) done_.acquire();
}

void ThreadPool::work(Worker& worker) {
  const ScopedRuntime scope(runtime_);
  while (Region* region = next_region(worker)) {
    region->run(worker.index);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == kCallerSleeps + 1) done_.release();
  }
}

// Returns the region whose piece this worker has taken, or null when the pool stops.
ThreadPool::Region* ThreadPool::next_region(Worker& worker) {
  const auto is_ready = [&] { return worker.region.load() != nullptr || stopping_.load(); };
  while (true) {
    if (spin_until(spins_ ? spin_us_ : 0, is_ready)) {
      if (Region* region = worker.region.exchange(nullptr)) return region;
      if (stopping_) return nullptr;
      continue;
    }
    worker.asleep = true;
    // If the flag is false again, rouse() has seen it and its token must be taken.
    if (is_ready() && worker.asleep.exchange(false)) continue;
    worker.wake.acquire();
  }
}

}  // namespace pg
