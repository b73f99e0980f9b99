// The working memory of the CPU kernels.
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <new>
#include <thread>

#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

TEST_CASE("scratch memory of nested scopes does not overlap") {
  for (int64_t size : {1, 63, 4096, 1 << 20, 40 << 20}) {
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
  CHECK_THROWS_AS(Scratch<float>(int64_t(1) << 55), std::bad_alloc);
  CHECK_THROWS_AS(Scratch<float>(-1), std::bad_alloc);
  const Scratch<char> inner(100);
  outer[99] = 1, inner[99] = 2;
  CHECK(outer[99] == 1);
}

TEST_CASE("a use of scratch memory that did not fit makes the next one fit") {
  if (!kKeepsScratch) return;
  std::thread([] {
    const auto use = [] {
      const Scratch<char> outer(64), inner(1 << 20), innermost(1 << 16);
      return inner.get() == outer.get() + 64 && innermost.get() == inner.get() + (1 << 20);
    };
    CHECK(!use());
    CHECK(use());
    const char* const block = Scratch<char>(64).get();
    CHECK(Scratch<char>(1 << 20).get() == block);
  }).join();
}

}  // namespace
}  // namespace pg::cpu
