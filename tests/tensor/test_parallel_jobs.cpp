// Regions of jobs: their threads wait at polls where a slice is over.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tests/tensor/arrays.h"
#include "tests/tensor/regions.h"

namespace pg::test {
namespace {

// Suspends at every `period`th request of the thread that made it, and runs `meanwhile` on another thread then.
class Slices final : public Suspender {
 public:
  Slices(int period, std::function<void()> meanwhile) : period_(period), meanwhile_(std::move(meanwhile)) {}
  bool due() const override { return std::this_thread::get_id() == owner_ && ++asked_ % period_ == 0; }
  bool suspend() override {
    if (std::this_thread::get_id() != owner_) ++strangers;
    if (!possible) return ++refused, false;
    ++suspended;
    std::exception_ptr error;
    std::thread([&] {
      try {
        meanwhile_();
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
    return true;
  }

  std::atomic<int> strangers{0};
  int suspended = 0, refused = 0;
  bool possible = true;

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  const int period_;
  const std::function<void()> meanwhile_;
  mutable int asked_ = 0;
};

// Counts how often each of n items is run, with a poll in the middle of each. Returns whether it was once for each.
bool runs_once(int64_t n, const std::atomic<bool>& flag, Slices& slices) {
  std::vector<std::atomic<int>> begun(static_cast<size_t>(n)), ended(static_cast<size_t>(n));
  const PollScope scope(&flag, &slices);
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ++begun[size_t(i)];
      poll_kernel();
      ++ended[size_t(i)];
    }
  });
  const auto once = [](const std::atomic<int>& count) { return count == 1; };
  return std::all_of(begun.begin(), begun.end(), once) && std::all_of(ended.begin(), ended.end(), once);
}

}  // namespace

TEST_CASE("jobs: the threads of a region wait inside their items while the pool is used") {
  const std::atomic<bool> flag{false};
  for (int threads : {1, 2, 3, 7}) {
    Threads scope(threads);
    for (int period : {1, 2, 5, 30}) {
      int regions = 0, whole = 0;
      Slices slices(period, [&] {
        ++regions;
        whole += int(partition(100, 1).size()) == threads;
      });
      CHECK(runs_once(60, flag, slices));
      CHECK(runs_once(7, flag, slices));
      if (period <= 5) CHECK(slices.suspended > 0);  // the caller's piece has at least 8 items
      CHECK(slices.suspended == regions);
      CHECK(slices.strangers == 0);
      CHECK(whole == regions);
    }
  }
}

TEST_CASE("jobs: nothing of a region runs between its slices") {
  Threads scope(4);
  const std::atomic<bool> flag{false};
  std::atomic<int> done{0};
  int moved = 0;
  Slices slices(3, [&] {
    const int before = done;
    std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) moved += done != before;
  });
  {
    const PollScope watched(&flag, &slices);
    parallel_for(4000, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        poll_kernel();
        ++done;
      }
    });
  }
  CHECK(done == 4000);
  CHECK(moved == 0);
  CHECK(slices.suspended > 0);
}

TEST_CASE("jobs: the caller sleeps until workers wait, and suspends the region then") {
  Threads scope(2);
  const std::atomic<bool> flag{false};
  std::atomic<bool> over{false};
  struct Both final : Suspender {
    explicit Both(const std::atomic<bool>& over) : over(over) {}
    bool due() const override { return over; }
    bool suspend() override { return ++suspended, true; }
    const std::atomic<bool>& over;
    int suspended = 0;
  } both(over);
  const PollScope watched(&flag, &both);
  for (int i = 0; i < 20; ++i) {
    both.suspended = 0;
    parallel_parts(2, [&](int64_t begin, int64_t) {
      if (begin == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the caller has stopped spinning
      over = true;
      poll_kernel();
      over = false;
    });
    CHECK(both.suspended == 1);
  }
}

TEST_CASE("jobs: a region in the pauses of another, and a request to stop in one") {
  Threads scope(3);
  std::atomic<bool> flag{false};
  int depth = 0;
  std::function<void()> nested;
  nested = [&] {
    Slices inner(2, nested);
    if (++depth < 3) CHECK(runs_once(20, flag, inner));
    --depth;
  };
  Slices outer(2, nested);
  CHECK(runs_once(40, flag, outer));
  CHECK(partition(100, 1).size() == 3);

  Slices cancels(2, [&] { flag = true; });
  CHECK_THROWS_AS(runs_once(200, flag, cancels), Cancelled);
  CHECK(cancels.suspended == 1);
  flag = false;
  Slices ends(2, [&] { throw Cancelled(); });
  CHECK_THROWS_AS(runs_once(200, flag, ends), Cancelled);
  CHECK(partition(100, 1).size() == 3);
}

TEST_CASE("jobs: only so many regions keep their threads") {
  Threads scope(2);
  const std::atomic<bool> flag{false};
  int depth = 0, most = 0;
  std::function<void()> nested;
  nested = [&] {  // one region inside each
    if (++depth > most) {
      most = depth;
      Slices inner(2, nested);
      CHECK(runs_once(8, flag, inner));
    }
    --depth;
  };
  nested();
  CHECK(most == ThreadPool::kMostKept + 1);
  most = 0;
  nested();
  CHECK(most == ThreadPool::kMostKept + 1);
}

TEST_CASE("jobs: a region that cannot be suspended asks once; threads may stop while one is suspended") {
  Threads scope(3);
  const std::atomic<bool> flag{false};
  Slices stays(1, [] {});
  stays.possible = false;
  CHECK(runs_once(50, flag, stays));
  CHECK(stays.suspended == 0);
  CHECK(stays.refused == 1);
  Slices stops(1, [] { Runtime::current().threads().stop(); });
  CHECK(runs_once(50, flag, stops));
  Slices shrinks(1, [] { Runtime::current().threads().resize(Runtime::current().threads().size() == 2 ? 3 : 2); });
  CHECK(runs_once(50, flag, shrinks));
  Runtime::current().threads().resize(3);
  CHECK(partition(100, 1).size() == 3);
}

}  // namespace pg::test
