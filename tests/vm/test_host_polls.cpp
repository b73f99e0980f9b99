// How often the functions of the library poll: the slices of a job without any time are as many as its polls.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "tests/vm/host.h"

namespace {

int count_slices(BareHost& host, const std::string& body) {
  REQUIRE(host.run("local pg = require 'perigee' function work() " + body + " end") == PERIGEE_OK);
  perigee_job* job = nullptr;
  REQUIRE(perigee_job_start(host.state, "work", nullptr, 0, &job) == PERIGEE_OK);
  int slices = 0;
  for (int done = 0; !done; ++slices) REQUIRE(perigee_job_step(job, 0, &done) == PERIGEE_OK);
  perigee_job_release(job);
  return slices;
}

// Runs the tasks of a region one after the other.
void run_tasks(void*, size_t count, void (*task)(void* arg, size_t index), void* arg) {
  for (size_t i = 0; i < count; ++i) task(arg, i);
}

}  // namespace

TEST_CASE("host polls: kernels with loops of their own poll in them") {
  LimitedHost host([](perigee_state_config&) {});
  REQUIRE(host.run("local pg = require 'perigee' V = pg.randn(1000000) P = pg.rand(1000) "
                   "I = pg.randint(1, 1000000, {1000000}) A = pg.randn(300, 300) S = A + A:t() "
                   "W = pg.randn(2000000) N = W:gt(0)") == PERIGEE_OK);
  struct {
    const char* script;
    int least;
  } const cases[] = {
      {"P:multinomial(1000000, {replacement = true})", 100},
      {"pg.randperm(1000000)", 100},
      {"pg.bernoulli(V * 0 + 0.5)", 25},
      {"V:nonzero()", 20},
      {"return W[N]", 25},
      {"V:scatter_add(1, I, V)", 15},
      {"V:unique()", 70},
      {"pg.linalg.qr(A)", 20},
      {"pg.linalg.eigh(S)", 500},
      {"pg.linalg.eigvalsh(S)", 500},
      {"pg.linalg.svdvals(A)", 30},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.script));
    CHECK(count_slices(host, c.script) >= c.least);
  }
}

TEST_CASE("host polls: tables become tensors, and tensors tables, in many steps") {
  LimitedHost host([](perigee_state_config&) {});
  REQUIRE(host.run("local pg = require 'perigee' V = pg.ones(100000) T = V:totable()") == PERIGEE_OK);
  CHECK(count_slices(host, "assert(#V:totable() == 100000)") > 90);
  CHECK(count_slices(host, "assert(pg.tensor(T):sum():item() == 100000)") > 90);
  CHECK(count_slices(host, "for i = 1, 100 do pg.tensor{1, 2, 3} end") > 100);
  CHECK(count_slices(host, "for i = 1, 100 do V:to_bytes() end") > 100);
}

TEST_CASE("host polls: with the host's parallel_for a product comes in several regions, with the same bits") {
  auto config = PERIGEE_INIT(perigee_runtime_config);
  config.threads = 2;
  config.parallel_for = run_tasks;
  BareHost host;
  host.open(config);
  for (const char* type : {"float32", "float64"})
    for (const char* product : {"A:matmul(B)", "B:t():matmul(A:t())", "A:t():matmul(A)", "D:matmul(A)"}) {
      CAPTURE(std::string(type));
      CAPTURE(std::string(product));
      const std::string options = std::string(", {dtype = '") + type + "'})";
      REQUIRE(host.run("local pg = require 'perigee' A = pg.randn(1300, 1100" + options + " B = pg.randn(1100, 900" +
                       options + ":narrow(2, 1, 700) D = pg.randn(700, 1300" + options + " want = " + product) ==
              PERIGEE_OK);
      CHECK(count_slices(host, std::string("got = ") + product) >= 9);
      CHECK(host.run("assert(got:eq(want):all():item())") == PERIGEE_OK);
    }
}
