// The operators new of the test program, which count and can be told to fail.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PERIGEE_SANITIZED 1  // the sanitizers define their own operators
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PERIGEE_SANITIZED 1
#endif
#endif

namespace pg::test {

// Counts down the allocations of a thread. The one that reaches 0 fails; with `persistent`, so do all later ones.
struct Countdown {
  long left = 0;  // 0: off
  bool persistent = false, happened = false;
  long asked = 0;  // all requests so far

  bool fails() {
    ++asked;
    if (left == 0 || --left > 0) return false;
    happened = true;
    if (persistent) left = 1;
    return true;
  }
};
extern constinit thread_local Countdown cpp_allocations;  // those of operator new

}  // namespace pg::test
