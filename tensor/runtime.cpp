#include "tensor/runtime.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "tensor/error.h"
#include "tensor/terminal.h"

namespace pg {
namespace {

void log_to_stderr(void*, int level, const char* text) {
  constexpr const char* kNames[] = {"", "error", "warning", "info"};
  const bool colours = has_colours(STDERR_FILENO);
  std::fprintf(stderr, "%sperigee: %s:%s %s\n", colours ? "\033[33m" : "", kNames[level], colours ? "\033[0m" : "",
               text);
}

RuntimeOptions process_options() {
  RuntimeOptions options;
  options.log = log_to_stderr;
  return options;
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options, bool eternal)
    : eternal_(eternal),
      log_(options.log),
      log_user_(options.log_user),
      memory_(options.memory, eternal),
      threads_(*this, options.threads, options.spin_us, options.jobs) {}

// Caches hold buffers, and no buffer is left when this runs.
Runtime::~Runtime() {
  for (Part& part : parts_)
    if (void* object = part.object.load(std::memory_order_acquire)) part.destroy(object);
}

Ref<Runtime> Runtime::create(const RuntimeOptions& options) {
  if (options.threads < 0 || options.threads > ThreadPool::kMaxThreads)
    bad_argument("runtime", "threads", "a whole number from 0 to 1024", std::to_string(options.threads));
  if (options.spin_us < 0 || options.spin_us > 1000)
    bad_argument("runtime", "spin_us", "a whole number from 0 to 1000", std::to_string(options.spin_us));
  if (!options.memory.allocate != !options.memory.release)
    bad_argument("runtime", "memory", "both functions or neither", "only one");
  return Ref<Runtime>(new Runtime(options, false));
}

// Leaked: workers and buffers may outlive static destruction if a host exits without closing its states.
Runtime& Runtime::process() {
  static Runtime* const instance = new Runtime(process_options(), true);
  return *instance;
}

int Runtime::next_part() {
  static std::atomic<int> count{0};
  const int index = count++;
  if (index >= kMaxParts) std::abort();  // at program start, before anything runs
  return index;
}

void* Runtime::add_part(int index, void* (*make)(), void (*destroy)(void*)) {
  static std::mutex lock;
  const std::lock_guard hold(lock);
  Part& part = parts_[size_t(index)];
  if (void* there = part.object.load(std::memory_order_relaxed)) return there;
  part.destroy = destroy;
  void* made = make();
  part.object.store(made, std::memory_order_release);
  return made;
}

}  // namespace pg
