// Suspender: how a computation that runs in slices of time stops between two pieces of work.
#pragma once
#include <chrono>
#include <cstdint>

namespace pg {

class Suspender {
 public:
  // Whether the time of the slice is over. Any thread may ask.
  virtual bool due() const = 0;
  // Returns true in the next slice, or false at once if the computation cannot stop here. Only the thread of the
  // computation may call it, without locks; in parallel regions ThreadPool does. Throws Cancelled if there is no next
  // slice.
  virtual bool suspend() = 0;
  // Before a poll: the work that follows it takes about so many nanoseconds; 0 if that is not known.
  virtual void expect(int64_t) {}

  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  void poll() {
    if (due()) suspend();
  }

 protected:
  ~Suspender() = default;
};

}  // namespace pg
