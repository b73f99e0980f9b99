// The threads that run the parts of kernels.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tensor/function_ref.h"

namespace pg {

class Runtime;

// A host's job system. Runs task(arg, i) for each i < count, on any threads in any order, and returns when all are
// done. Tasks do not throw. Null: the pool starts its own threads.
struct JobSystem {
  void (*parallel_for)(void* user, size_t count, void (*task)(void* arg, size_t index), void* arg) = nullptr;
  void* user = nullptr;
};

// Threads start with the first parallel region. Between regions they spin for a short time and then sleep. Workers
// block signals: a handler of the host runs on a thread of the host.
//
// Piece i of a region is for worker i, so that the worker finds its part of the data in its caches when the next region
// has the same partition. A region gives each worker a pointer to itself. Whoever takes the pointer back runs the
// piece: the worker, or the caller if the worker has not begun when the caller has nothing else to do. So a region
// never waits for a thread to wake up.
//
// The region of a job stops where the slice is over: its threads wait at their polls, wherever these are, until the
// next slice. It keeps the workers, and other regions get new ones. At most kMostKept regions do; others run to their
// end.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  // `runtime` owns the pool; it is current on the threads that run its regions. threads = 0: one per processor. An idle
  // thread sleeps `spin_us` microseconds after the last region has ended, and spins until then, but for 100 times as
  // long at most; so does a caller that waits for pieces.
  ThreadPool(Runtime& runtime, int threads, int spin_us, const JobSystem& jobs);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that a region may use, the caller included.
  int size() const { return size_.load(std::memory_order_relaxed); }
  void resize(int64_t n);  // 1 to kMaxThreads; throws Error otherwise
  // Joins the workers. Later regions start them again.
  void stop();

  // See parallel_for and parallel_parts in tensor/parallel.h. A region of less than kWorthWaking grains uses only the
  // threads that still spin, but every kPatience-th such region wakes the others, in case more follow soon. A region of
  // parts has grain 0.
  static constexpr int64_t kWorthWaking = 4;
  static constexpr int kPatience = 8;
  static constexpr int kMostKept = 16;
  void run(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

  // Whether a region of this thread stops only at its end where a slice of a job is over: threads of the host may not
  // wait. Then long work is to come in several regions.
  bool stops_between_regions() const;

  // As a region for the threads that spin: for work between two regions, such as that of the collector.
  class Awake {
   public:
    explicit Awake(ThreadPool& pool) : pool_(pool) { pool_.busy_.fetch_add(1, std::memory_order_relaxed); }
    ~Awake() { pool_.busy_.fetch_sub(1, std::memory_order_relaxed); }
    Awake(const Awake&) = delete;

   private:
    ThreadPool& pool_;
  };

 private:
  struct Region;
  struct Worker;
  struct Team;
  void run_on_host(int64_t n, int64_t grain, int64_t pieces, FunctionRef<void(int64_t, int64_t)> body);
  bool grow();
  void give_back(std::unique_ptr<Team> team);
  void wait_until_idle(Team& team);
  void work(Team& team, Worker& worker);
  Region* next_region(Team& team, Worker& worker);

  Runtime& runtime_;
  const JobSystem jobs_;
  const int spin_us_;
  std::atomic<int> size_;
  std::atomic<int> busy_{0};  // regions, and other work that comes between two of them

  std::mutex region_lock_;      // held by the thread that runs a region on team_
  std::unique_ptr<Team> team_;  // null before the first region, and while a job keeps it
  std::mutex spare_lock_;
  std::vector<std::unique_ptr<Team>> spare_;  // that jobs have given back
  std::atomic<uint32_t> born_{0};             // the forks of the process at the last region
  std::atomic<int> kept_{0};                  // teams that regions of jobs keep
  std::atomic<int> stops_{0};                 // how often stop() was called
  std::atomic<bool> spins_{false};            // there is a processor for each thread
};

}  // namespace pg
