// The working memory of the CPU kernels.
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <new>
#include <thread>

#include "tensor/cpu/scratch.h"
#include "tensor/error.h"
#include "tensor/memory_account.h"
#include "tests/tensor/regions.h"

namespace pg::cpu {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

TEST_CASE("scratch memory of nested scopes does not overlap") {
  for (int64_t size : {1, 63, 4096, 1 << 18, 1 << 20, 40 << 20}) {
    const Scratch<char> outer(size);
    std::memset(outer.get(), 1, size_t(size));
    for (int i = 0; i < 3; ++i) {
      const Scratch<double> inner(size / 8 + 1), innermost(i == 1 ? 3 * size : 1);
      CHECK(aligned(outer));
      CHECK(aligned(inner));
      CHECK(aligned(innermost));
      std::memset(inner.get(), 2, size_t(size / 8 + 1) * 8);
      std::memset(innermost.get(), 3, 8);
      CHECK(inner[size / 8] != innermost[0]);
    }
    CHECK(std::count(outer.get(), outer.get() + size, 1) == size);
  }
}

TEST_CASE("scratch memory of nothing is null") {
  const Scratch<float> none(0);
  CHECK(none.get() == nullptr);
}

TEST_CASE("scratch memory that is too large leaves the rest usable") {
  const Scratch<char> outer(100);
  CHECK_THROWS_AS(Scratch<float>(int64_t(1) << 55), OutOfMemory);
  CHECK_THROWS_AS(Scratch<float>(-1), OutOfMemory);
  const Scratch<char> inner(100);
  outer[99] = 1, inner[99] = 2;
  CHECK(outer[99] == 1);
}

TEST_CASE("a use of scratch memory that did not fit makes the next one fit") {
  if (!kKeepsScratch) return;
  std::thread([] {
    const auto use = [] {
      const Scratch<char> outer(64), inner(1 << 19), innermost(1 << 16);
      return inner.get() == outer.get() + 64 && innermost.get() == inner.get() + (1 << 19);
    };
    CHECK(!use());
    CHECK(use());
    const char* const block = Scratch<char>(64).get();
    CHECK(Scratch<char>(1 << 19).get() == block);
  }).join();
}

TEST_CASE("large working memory is counted, on the threads of a region too") {
  struct Refusals {
    const std::thread::id owner = std::this_thread::get_id();
    int count = 0;
  } refusals;
  const auto refused = [](void* user) {
    auto& r = *static_cast<Refusals*>(user);
    CHECK(std::this_thread::get_id() == r.owner);
    ++r.count;
  };
  const Ref<MemoryAccount> account(new MemoryAccount(int64_t(24) << 20, refused, &refusals));
  const ScopedAccount scope(account.get());
  const test::Threads threads(3);
  const auto take = [](int64_t bytes) {
    parallel_parts(3, [&](int64_t, int64_t) {
      const Scratch<char> scratch(bytes);
      WorkVector<int64_t> numbers(size_t(bytes) / 8, 7);
      CHECK(aligned(numbers.data()));
      CHECK(MemoryAccount::current()->used() >= 2 * bytes);
    });
  };
  take(int64_t(2) << 20);
  CHECK(refusals.count == 0);
  CHECK(account->used() == 0);
  CHECK_THROWS_AS(take(int64_t(30) << 20), OutOfMemory);
  CHECK(refusals.count >= 1);
  CHECK(account->used() == 0);
}

}  // namespace
}  // namespace pg::cpu
