#include "tensor/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <optional>
#include <semaphore>
#include <string>
#include <system_error>
#include <thread>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/line_time.h"
#include "tensor/memory_account.h"
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

constexpr int kLongSpins = 100;  // a long time to spin, in times of an idle thread

// Calls `ready` until it returns true, for `us` microseconds after `expects` was true for the last time, and for at
// most kLongSpins times as long. Returns its last result.
template <class Ready, class Expects>
bool spin_until(int us, Ready ready, Expects expects) {
  const std::chrono::microseconds short_time(us);
  const auto start = std::chrono::steady_clock::now();
  for (auto end = start + short_time, now = start; now < end; now = std::chrono::steady_clock::now()) {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      spin_pause();
    }
    if (expects() && now < start + kLongSpins * short_time) end = now + short_time;
  }
  return ready();
}

// The items between two polls of a piece.
int64_t poll_step(int64_t grain) { return grain > 1 ? grain > INT64_MAX / 64 ? INT64_MAX : grain * 64 : 8; }

// The same for jobs, which stop at polls: as many items as take about kAim, beginning with `items`.
class JobSteps {
 public:
  explicit JobSteps(int64_t items) : step_(std::max<int64_t>(items, 1)) {}
  // Runs the next step of [at, end). Returns where it has ended.
  int64_t operator()(FunctionRef<void(int64_t, int64_t)> body, int64_t at, int64_t end) {
    const int64_t next = end - at > step_ ? at + step_ : end;
    const auto start = std::chrono::steady_clock::now();
    body(at, next);
    const auto took = std::chrono::steady_clock::now() - start;
    if (took > kAim) step_ = std::max<int64_t>(step_ / 2, 1);
    if (took < kAim / 4 && step_ < INT64_MAX / 2) step_ *= 2;
    return next;
  }

 private:
  static constexpr std::chrono::microseconds kAim{150};
  int64_t step_;
};

// Runs [begin, end) in one call, or in short ones with polls between them when a cancel flag is watched.
void run_piece(FunctionRef<void(int64_t, int64_t)> body, int64_t begin, int64_t end, int64_t grain) {
  if (!inside_poll_scope()) return body(begin, end);
  if (watched_here().suspender) {
    JobSteps steps(poll_step(grain) / 8);
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
  std::atomic<bool> started{false};
  bool given_again = false;  // its piece is begun in the next slice of the job
  std::binary_semaphore wake{0};
  std::thread thread;
};

// The workers of one region at a time.
struct ThreadPool::Team {
  ~Team() {
    if (forked()) {  // the workers do not exist in this process, so nothing may touch them
      for (auto& worker : workers) (void)worker.release();
      return;
    }
    stopping = true;
    for (const auto& worker : workers) worker->rouse();
    for (const auto& worker : workers) worker->thread.join();
  }
  bool forked() const { return born != forks; }
  // Called by a worker that has finished its piece or waits for the next slice.
  void leave() {
    if (active.fetch_sub(1, std::memory_order_acq_rel) == kCallerSleeps + 1) idle.release();
  }

  // Whether the first worker waits for a region and does not sleep.
  bool waits() const { return !workers.empty() && workers[0]->started && !workers[0]->asleep; }

  std::vector<std::unique_ptr<Worker>> workers;
  uint32_t born = forks;  // the forks of the process when the workers were started
  int stops = 0;          // of the pool, likewise
  int unwoken = 0;        // small regions since the last one that woke threads
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<uint32_t> active{0};  // workers that run pieces; kCallerSleeps is added
  std::binary_semaphore idle{0};                // released by the last of them if the caller sleeps
};

// For its threads the region of a job is what suspends them: workers wait until the thread of the job, which waits for
// them before it hands over, goes on.
struct ThreadPool::Region final : Suspender {
  Region(ThreadPool& pool, FunctionRef<void(int64_t, int64_t)> body, int64_t n, int64_t pieces, int64_t grain,
         const Watched& watched)
      : pool(pool), body(body), n(n), pieces(pieces), grain(grain), watched(watched) {}

  int64_t start(int64_t i) const { return n / pieces * i + std::min(i, n % pieces); }

  // Runs piece i. Its error becomes the region's if it is the first.
  void run(int64_t i) {
    const ScopedFlag inside(inside_region, true);
    const ScopedAccount counted(account, std::this_thread::get_id() != caller);
    const PollScope scope(watched.flag, watched.suspender ? this : nullptr);
    keep_error([&] { run_piece(body, start(i), start(i + 1), grain); });
  }

  // Runs all pieces. `hold` has the lock of the pool's team, which may go to the region.
  void run_on_team(std::unique_lock<std::mutex>& hold, bool small) {
    team = pool.team_.get();
    held = &hold;
    const auto& workers = team->workers;
    helpers = std::min(pieces - 1, int64_t(workers.size()));
    const bool wakes = !small || ++team->unwoken >= kPatience;
    if (wakes) team->unwoken = 0;
    awake.emplace(pool);
    team->active.store(uint32_t(helpers), std::memory_order_relaxed);
    for (int64_t i = 0; i < helpers; ++i) {
      Worker& worker = *workers[size_t(i)];
      worker.region.store(this);
      if (wakes || !worker.asleep.load()) worker.rouse();
    }
    run(0);
    for (int64_t i = helpers + 1; i < pieces; ++i) run(i);
    for (int64_t i = helpers; i-- > 0;)
      if (take_back(i)) run(i + 1);
    while (true) {
      pool.wait_until_idle(*team);
      if (waiting == 0) break;
      keep_error([&] { pause(); });
    }
    if (kept) pool.give_back(std::move(kept));
  }

  static void measure_line_time(ThreadPool& pool, std::unique_lock<std::mutex>& hold) {
    const std::unique_ptr<LineExchange> lines(new (std::nothrow) LineExchange);  // too large for small stacks
    if (!lines) return;
    const auto exchange = [&](int64_t part, int64_t) { lines->run(part); };
    Region(pool, exchange, 2, 2, 0, {}).run_on_team(hold, false);
    if (lines->result() > 0) line_time.set(lines->result());
  }

  bool due() const override {
    return pausing.load(std::memory_order_relaxed) ||
           (may_pause.load(std::memory_order_relaxed) && watched.suspender->due());
  }
  bool suspend() override {
    if (std::this_thread::get_id() == caller) return pause();
    std::unique_lock guard(lock);
    const uint64_t slice = slices;
    ++waiting;
    team->leave();
    goes_on.wait(guard, [&] { return slices != slice; });
    return true;
  }

  void rethrow_error() const {
    if (!error) return;
    if (account) account->report();
    std::rethrow_exception(error);
  }

 private:
  template <class F>
  void keep_error(F&& run) {
    try {
      run();
    } catch (...) {
      const std::lock_guard guard(lock);
      if (!error) error = std::current_exception();
    }
  }

  // Whether worker i has not begun its piece. Then the caller has it, or gives it again.
  bool take_back(int64_t i) {
    if (!team->workers[size_t(i)]->region.exchange(nullptr)) return false;
    team->active.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  // Of the calling thread: hands over once no worker runs. The team goes to the region, so that the pool can be used.
  bool pause() {
    struct GoOn {
      Region& region;
      ~GoOn() { region.go_on(); }
    } const after{*this};
    pausing = true;
    for (int64_t i = 0; i < helpers; ++i)
      if (take_back(i)) team->workers[size_t(i)]->given_again = true;
    pool.wait_until_idle(*team);
    awake.reset();
    const bool suspended = keep_team() && watched.suspender->suspend();
    awake.emplace(pool);
    if (!suspended) may_pause = false;
    return suspended;
  }

  bool keep_team() {
    if (kept) return true;
    if (++pool.kept_ > kMostKept) return --pool.kept_, false;
    kept = std::move(pool.team_);
    held->unlock();
    return true;
  }

  void go_on() {
    pausing = false;
    {
      const std::lock_guard guard(lock);
      uint32_t active = uint32_t(waiting);
      for (const auto& worker : team->workers) active += worker->given_again;
      team->active = active;
      waiting = 0;
      ++slices;
    }
    goes_on.notify_all();
    for (const auto& worker : team->workers) {
      if (!std::exchange(worker->given_again, false)) continue;
      worker->region = this;
      worker->rouse();
    }
  }

  ThreadPool& pool;
  const FunctionRef<void(int64_t, int64_t)> body;
  const int64_t n, pieces, grain;
  const Watched watched;  // by the caller
  MemoryAccount* const account = MemoryAccount::current();
  const std::thread::id caller = std::this_thread::get_id();
  std::optional<Awake> awake;  // but not while the job is suspended
  Team* team = nullptr;
  std::unique_lock<std::mutex>* held = nullptr;
  std::unique_ptr<Team> kept;
  int64_t helpers = 0;                // workers that have been given pieces
  std::atomic<bool> pausing{false};   // the slice of the job is over
  std::atomic<bool> may_pause{true};  // the job has not refused to stop here
  std::mutex lock;                    // of what follows, and of `error`
  std::condition_variable goes_on;
  uint64_t slices = 0;
  std::exception_ptr error = nullptr;
  int waiting = 0;  // workers that wait for the next slice; read without the lock only while no worker is active
};

ThreadPool::ThreadPool(Runtime& runtime, int threads, int spin_us, const JobSystem& jobs)
    : runtime_(runtime), jobs_(jobs), spin_us_(spin_us), size_(threads ? threads : processors()) {}

ThreadPool::~ThreadPool() {
  team_.reset();
  spare_.clear();
}

void ThreadPool::resize(int64_t n) {
  if (n < 1 || n > kMaxThreads)
    bad_argument("set_num_threads", "n", "a whole number from 1 to 1024", std::to_string(n));
  if (n < size()) stop();
  size_ = int(n);
}

void ThreadPool::stop() {
  if (born_ != forks) return;  // a child process; the lock may be held by a thread that it does not have
  const std::lock_guard regions(region_lock_);
  ++stops_;
  team_.reset();
  const std::lock_guard spare(spare_lock_);
  spare_.clear();
}

void ThreadPool::run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const bool small = grain > 0 && n / grain < kWorthWaking;
  grain = std::max<int64_t>(grain, 1);
  const int64_t share = jobs_.parallel_for ? 2 : 4;  // threads of the host cost more to start
  const int64_t pieces = std::min<int64_t>(size(), n / ((grain - 1) / share + 1));
  if (pieces <= 1 || inside_region) return run_piece(body, 0, n, grain);
  if (jobs_.parallel_for) return run_on_host(n, grain, pieces, body);
  std::unique_lock hold(region_lock_, std::try_to_lock);
  if (!hold || !grow()) return run_piece(body, 0, n, grain);
  if (team_->waits() && line_time.is_due()) Region::measure_line_time(*this, hold);
  Region region(*this, body, n, pieces, grain, watched_here());
  region.run_on_team(hold, small);
  region.rethrow_error();
}

bool ThreadPool::stops_between_regions() const {
  return jobs_.parallel_for && watched_here().suspender && !inside_region;
}

// Threads of the host may not wait for the next slice of a job, so its regions are cut.
void ThreadPool::run_on_host(int64_t n, int64_t grain, int64_t pieces, FunctionRef<void(int64_t, int64_t)> body) {
  struct Job {
    Region& region;
    Runtime& runtime;
  };
  const auto run = [&](int64_t begin, int64_t end) {
    const auto shifted = [&](int64_t from, int64_t to) { body(begin + from, begin + to); };
    const int64_t count = end - begin, parts = std::min(pieces, count);
    Region region(*this, shifted, count, parts, grain, {watched_here().flag});
    Job job{region, runtime_};
    const auto task = [](void* arg, size_t i) {
      const Job& job = *static_cast<Job*>(arg);
      const ScopedRuntime scope(job.runtime);
      job.region.run(int64_t(i));
    };
    jobs_.parallel_for(jobs_.user, size_t(parts), task, &job);
    region.rethrow_error();
  };
  if (!watched_here().suspender) return run(0, n);
  const int64_t step = poll_step(grain) / 8;
  JobSteps steps(step > n / pieces ? n : step * pieces);
  for (int64_t at = 0; at < n; at = steps(run, at, n)) poll_kernel();
}

// Makes team_ a team with a thread for each piece but the caller's. A thread that cannot be started is no error: the
// caller can do all the work. Returns whether there is a team.
bool ThreadPool::grow() {
  if (team_ && team_->forked()) team_.reset();
  count_forks();
  born_ = forks.load();
  if (!team_) {
    const std::unique_lock hold(spare_lock_, std::try_to_lock);
    if (hold && !spare_.empty() && !spare_.back()->forked()) {
      team_ = std::move(spare_.back());
      spare_.pop_back();
    } else {
      team_.reset(new (std::nothrow) Team);
      if (!team_) return false;
    }
  }
  Team& team = *team_;
  team.stops = stops_;
  if (int(team.workers.size()) + 1 >= size()) return true;
  spins_ = size() <= processors();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    team.workers.reserve(size_t(size()));  // a thread whose worker finds no place would end the process
    while (int(team.workers.size()) + 1 < size()) {
      auto worker = std::make_unique<Worker>(int64_t(team.workers.size()) + 1);
      worker->thread = std::thread([this, &team, w = worker.get()] { work(team, *w); });
      team.workers.push_back(std::move(worker));
    }
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

// Of a region that has kept it. A team whose threads were to stop meanwhile ends here.
void ThreadPool::give_back(std::unique_ptr<Team> team) {
  --kept_;
  const std::unique_lock hold(spare_lock_, std::try_to_lock);
  if (!hold || team->stops != stops_) return;
  try {
    spare_.push_back(std::move(team));
  } catch (const std::bad_alloc&) {}
}

// Returns when no worker of the team runs a piece.
void ThreadPool::wait_until_idle(Team& team) {
  const auto is_idle = [&] { return team.active.load(std::memory_order_acquire) == 0; };
  // Longer than an idle thread does: what the caller waits for runs already, and is over in a few milliseconds at most.
  // To be woken costs up to 100 us on a virtual machine.
  if (spin_until(spins_ ? spin_us_ : 0, is_idle, [] { return true; })) return;
  if (team.active.fetch_add(kCallerSleeps, std::memory_order_acq_rel) != 0) team.idle.acquire();
  team.active = 0;
}

void ThreadPool::work(Team& team, Worker& worker) {
  const ScopedRuntime scope(runtime_);
  worker.started = true;
  while (Region* region = next_region(team, worker)) {
    region->run(worker.index);
    team.leave();
  }
}

// Returns the region whose piece this worker has taken, or null when the team ends.
ThreadPool::Region* ThreadPool::next_region(Team& team, Worker& worker) {
  const auto is_ready = [&] { return worker.region.load() != nullptr || team.stopping.load(); };
  while (true) {
    if (spin_until(spins_ ? spin_us_ : 0, is_ready, [&] { return busy_.load(std::memory_order_relaxed) > 0; })) {
      if (Region* region = worker.region.exchange(nullptr)) return region;
      if (team.stopping) return nullptr;
      continue;
    }
    worker.asleep = true;
    // If the flag is false again, rouse() has seen it and its token must be taken.
    if (is_ready() && worker.asleep.exchange(false)) continue;
    worker.wake.acquire();
  }
}

}  // namespace pg
