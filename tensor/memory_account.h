// Counts the memory of one owner, such as a Lua state, against a limit.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

#include "tensor/refcount.h"

namespace pg {

// Buffers, and objects with a Counted member, keep the account in which they are counted alive. All functions may be
// called from any thread.
class MemoryAccount : public RefCounted<MemoryAccount> {
 public:
  // refused(user) is called on the thread whose request the limit does not allow. For a thread that helps another one,
  // the other one calls it in report().
  MemoryAccount(int64_t limit, void (*refused)(void* user), void* user)
      : limit_(limit), refused_(refused), user_(user) {}
  static void destroy(MemoryAccount* account) { delete account; }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

  // Counts `bytes` more. Returns false, and counts nothing, if the limit does not allow them.
  bool take(int64_t bytes) {
    const int64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
    if (bytes <= limit_ - before) return true;
    give(bytes);
    if (helps_)
      refused_to_helper_ = true;
    else if (refused_)
      refused_(user_);
    return false;
  }
  // After helpers have worked for this thread.
  void report() {
    if (refused_to_helper_.exchange(false) && refused_) refused_(user_);
  }
  // From now on nobody is told of refused requests. Not while one is made.
  void forget_owner() { refused_ = nullptr; }
  // Counts `bytes` more, whatever the limit. The next request is refused if they do not fit.
  void add(int64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void give(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  // The account of the tensor memory that this thread allocates, or null.
  static MemoryAccount* current() { return current_; }

 private:
  friend class ScopedAccount;
  static inline thread_local MemoryAccount* current_ = nullptr;
  static inline thread_local bool helps_ = false;

  const int64_t limit_;
  void (*refused_)(void* user);
  void* const user_;
  std::atomic<int64_t> used_{0};
  std::atomic<bool> refused_to_helper_{false};
};

// A member of small objects that a script may make without end. It counts kBytes in the account of the thread that
// makes the object, as long as the object lives. Nothing is refused, because such objects are also made where nothing
// may fail: what a script can repeat also takes memory of Lua or of tensors, and that is refused.
template <int64_t kBytes>
class Counted {
 public:
  Counted() : account_(MemoryAccount::current()) {
    if (!account_) return;
    account_->retain();
    account_->add(kBytes);
  }
  Counted(const Counted&) : Counted() {}
  Counted(Counted&& other) noexcept : account_(std::exchange(other.account_, nullptr)) {}
  Counted& operator=(Counted other) noexcept {
    std::swap(account_, other.account_);
    return *this;
  }
  ~Counted() {
    if (!account_) return;
    account_->give(kBytes);
    account_->release();
  }

 private:
  MemoryAccount* account_;
};

// Makes an account, which may be null, current on this thread. The caller keeps it alive. `helps`: the thread works for
// one that has the account too.
class ScopedAccount {
 public:
  explicit ScopedAccount(MemoryAccount* account, bool helps = false)
      : outer_(std::exchange(MemoryAccount::current_, account)),
        outer_helps_(std::exchange(MemoryAccount::helps_, helps)) {}
  ~ScopedAccount() {
    MemoryAccount::current_ = outer_;
    MemoryAccount::helps_ = outer_helps_;
  }
  ScopedAccount(const ScopedAccount&) = delete;
  ScopedAccount& operator=(const ScopedAccount&) = delete;

 private:
  MemoryAccount* const outer_;
  const bool outer_helps_;
};

}  // namespace pg
