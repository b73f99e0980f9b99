// Helpers for tests of parallel regions.
#pragma once
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "tensor/parallel.h"
#include "tensor/runtime.h"

namespace pg::test {

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

inline Pieces partition(int64_t n, int64_t grain) {
  Pieces pieces;
  std::mutex lock;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard hold(lock);
    pieces.emplace_back(begin, end);
  });
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

// Sets the number of threads for a test.
class Threads {
 public:
  explicit Threads(int n) : saved_(num_threads()) { Runtime::current().threads().resize(n); }
  ~Threads() { Runtime::current().threads().resize(saved_); }

 private:
  int saved_;
};

}  // namespace pg::test
