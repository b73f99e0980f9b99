// Calls functions at deadlines, on a thread of its own.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace pg::host {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<Clock::time_point, uint64_t>;

  // The one of the process. Its thread starts at the first deadline, and again after a fork.
  static Watchdog& process();

  // Calls expire() at `when`. It must be short and must not throw.
  Key arm(Clock::time_point when, std::function<void()> expire);
  // Takes a deadline back. Its function does not run afterwards.
  void disarm(const Key& key);

 private:
  void start();
  void run();

  std::mutex lock_;
  std::condition_variable changed_;
  std::map<Key, std::function<void()>> deadlines_;
  uint64_t next_ = 0;
  bool started_ = false;
};

}  // namespace pg::host
