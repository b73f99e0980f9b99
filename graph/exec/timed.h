// TimedSuspender: a suspender that knows how long the work ahead will take, so that slices end close to their time.
#pragma once
#include <chrono>
#include <cstdint>

#include "tensor/suspend.h"

namespace pg {

class TimedSuspender : public Suspender {
 public:
  // Before a poll: the work that follows it takes about so many nanoseconds; 0 if that is not known.
  virtual void expect(int64_t nanoseconds) = 0;

  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
};

}  // namespace pg
