// A runtime owns what a host shares between its states: threads, tensor memory, caches and a log. A process starts with
// one runtime; a host can create more. Runtimes share nothing but code.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/memory_pool.h"
#include "tensor/refcount.h"
#include "tensor/thread_pool.h"

namespace pg {

enum class LogLevel { kError = 1, kWarning, kInfo };

struct RuntimeOptions {
  int threads = 0;      // threads that a kernel may use, including the caller; 0: one per processor
  int spin_us = 20;     // microseconds that an idle thread of the runtime spins before it sleeps; 0 to 1000
  JobSystem jobs;       // runs the parts of kernels instead of the runtime's own threads
  MemorySource memory;  // where tensor memory comes from instead of the system
  void (*log)(void* user, int level, const char* text) = nullptr;  // a LogLevel; null: messages are dropped
  void* log_user = nullptr;
};

// Buffers, contexts and compiled graphs keep their runtime alive. All functions may be called from any thread.
class Runtime {
 public:
  // Throws Error if `threads` or `spin_us` is out of range or only one of the two functions for memory is set.
  static Ref<Runtime> create(const RuntimeOptions& options);
  // The runtime that exists from the start: own threads, system memory, and a log to standard error. Never destroyed.
  static Runtime& process();
  // The runtime of the innermost ScopedRuntime of this thread, or process().
  static Runtime& current() { return current_ ? *current_ : process(); }

  ThreadPool& threads() { return threads_; }
  MemoryPool& memory() { return memory_; }
  void log(LogLevel level, const char* text) const {
    if (log_) log_(log_user_, int(level), text);
  }

  // The process's runtime is not counted: threads need not share a counter for each buffer.
  void retain() const {
    if (!eternal_) count_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() const {
    if (!eternal_ && count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  friend class ScopedRuntime;
  template <class T>
  friend class PerRuntime;
  static constexpr int kMaxParts = 8;
  struct Part {
    std::atomic<void*> object{nullptr};
    void (*destroy)(void*) = nullptr;
  };

  Runtime(const RuntimeOptions& options, bool eternal);
  ~Runtime();
  static int next_part();
  void* add_part(int index, void* (*make)(), void (*destroy)(void*));

  static inline thread_local Runtime* current_ = nullptr;

  const bool eternal_;
  mutable std::atomic<int64_t> count_{0};
  void (*log_)(void*, int, const char*);
  void* log_user_;
  MemoryPool memory_;
  ThreadPool threads_;
  std::array<Part, kMaxParts> parts_;
};

// Makes a runtime current on this thread. The caller keeps it alive.
class ScopedRuntime {
 public:
  explicit ScopedRuntime(Runtime& runtime) : outer_(Runtime::current_) { Runtime::current_ = &runtime; }
  ~ScopedRuntime() { Runtime::current_ = outer_; }
  ScopedRuntime(const ScopedRuntime&) = delete;
  ScopedRuntime& operator=(const ScopedRuntime&) = delete;

 private:
  Runtime* outer_;
};

// One object of an upper layer per runtime, created on first use. Define it at namespace scope. At most
// Runtime::kMaxParts can be defined.
template <class T>
class PerRuntime {
 public:
  T& of(Runtime& runtime) const {
    void* part = runtime.parts_[size_t(index_)].object.load(std::memory_order_acquire);
    if (!part)
      part = runtime.add_part(
          index_, [] { return static_cast<void*>(new T); }, [](void* p) { delete static_cast<T*>(p); });
    return *static_cast<T*>(part);
  }

 private:
  const int index_ = Runtime::next_part();
};

}  // namespace pg
