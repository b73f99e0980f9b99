// The threads that run the parts of kernels.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
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

// Threads start with the first parallel region and sleep between regions. Workers block signals: a handler of the host
// runs on a thread of the host.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  // `runtime` owns the pool; it is current on the threads that run its regions. threads = 0: one per processor.
  ThreadPool(Runtime& runtime, int threads, const JobSystem& jobs);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that a region may use, the caller included.
  int size() const { return size_.load(std::memory_order_relaxed); }
  void resize(int64_t n);  // 1 to kMaxThreads; throws Error otherwise
  // Joins the workers. Later regions start them again.
  void stop();

  // See parallel_for in tensor/parallel.h.
  void run(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct Region;
  void run_on_workers(Region& region);
  void grow();
  void wait_until_done(Region& region);
  void worker();

  Runtime& runtime_;
  const JobSystem jobs_;
  std::atomic<int> size_;
  std::mutex region_lock_;  // held by the thread that runs a region on the workers

  std::mutex lock_;  // guards the members below
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Region* region_ = nullptr;
  uint64_t generation_ = 0;
  bool stopping_ = false;
};

}  // namespace pg
