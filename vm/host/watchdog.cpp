#include "vm/host/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "tensor/error.h"

namespace pg::host {
namespace {

std::atomic<Watchdog*> instance{nullptr};

}  // namespace

// Leaked: the thread may outlive static destruction. A forked child has no thread, and perhaps a locked mutex, so it
// gets a new instance.
Watchdog& Watchdog::process() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { instance = nullptr; });
  (void)registered;
  Watchdog* found = instance;
  if (found) return *found;
  auto* made = new Watchdog;
  if (instance.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

// The signals of the host are for its own threads.
void Watchdog::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { run(); }).detach();
    started_ = true;
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw OutOfMemory("a limit of time needs a thread, and the system gives none");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::Key Watchdog::arm(Clock::time_point when, std::function<void()> expire) {
  const std::lock_guard hold(lock_);
  if (!started_) start();
  const Key key{when, next_++};
  const auto place = deadlines_.emplace(key, std::move(expire)).first;
  if (place == deadlines_.begin()) changed_.notify_one();
  return key;
}

void Watchdog::disarm(const Key& key) {
  const std::lock_guard hold(lock_);
  deadlines_.erase(key);
}

void Watchdog::run() {
  std::unique_lock hold(lock_);
  for (;;) {
    if (deadlines_.empty()) {
      changed_.wait(hold);
      continue;
    }
    const auto first = deadlines_.begin();
    if (Clock::now() < first->first.first) {
      const Clock::time_point until = first->first.first;
      changed_.wait_until(hold, until);
      continue;
    }
    first->second();
    deadlines_.erase(first);
  }
}

}  // namespace pg::host
