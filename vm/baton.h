// Baton: two threads pass a state to each other.
#pragma once
#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <chrono>

namespace pg::vm {

// A binary semaphore. std::binary_semaphore polls in its timed wait and sleeps for up to half of the time that has
// passed, so it returns late. A condition variable cannot be destroyed in a forked process while a thread of the parent
// waits for it.
class Baton {
 public:
  Baton() { sem_init(&semaphore_, 0, 0); }
  ~Baton() { sem_destroy(&semaphore_); }
  Baton(const Baton&) = delete;

  void release() {
    passed_.store(true, std::memory_order_release);
    sem_post(&semaphore_);
  }
  void acquire() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {}
    take();
  }
  // Returns whether the baton came before `limit`.
  bool try_acquire_until(std::chrono::steady_clock::time_point limit) {
    const int64_t at = limit.time_since_epoch().count();
    const timespec t{time_t(at / 1'000'000'000), long(at % 1'000'000'000)};
    int code = 0;
    while ((code = sem_clockwait(&semaphore_, CLOCK_MONOTONIC, &t)) != 0 && errno == EINTR) {}
    if (code == 0) take();
    return code == 0;
  }

 private:
  // ThreadSanitizer does not know sem_clockwait, so the order of the threads' accesses is an atomic's.
  void take() { passed_.exchange(false, std::memory_order_acquire); }

  sem_t semaphore_;
  std::atomic<bool> passed_{false};
};

}  // namespace pg::vm
