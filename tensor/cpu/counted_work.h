// CountedWork: working memory of kernels that does not come from scratch.h.
#pragma once
#include <cstdint>

#include "tensor/cpu/scratch.h"
#include "tensor/error.h"
#include "tensor/memory_account.h"

namespace pg::cpu {

// Counts bytes that are allocated elsewhere, such as by a library, in the account of this thread for the extent of a
// scope; as in scratch.h not little ones. Throws OutOfMemory.
class CountedWork {
 public:
  explicit CountedWork(int64_t bytes) : bytes_(bytes) {
    MemoryAccount* const account = MemoryAccount::current();
    if (!account || bytes < int64_t(kCountedScratch)) return;
    if (!account->take(bytes))
      throw OutOfMemory(fmt::format(
          "out of memory: cannot take {} bytes to work with (the limit is {} bytes, of which {} are in use)", bytes,
          account->limit(), account->used()));
    account_ = Ref<MemoryAccount>(account);
  }
  ~CountedWork() {
    if (account_) account_->give(bytes_);
  }
  CountedWork(const CountedWork&) = delete;
  CountedWork& operator=(const CountedWork&) = delete;

 private:
  const int64_t bytes_;
  Ref<MemoryAccount> account_;
};

}  // namespace pg::cpu
