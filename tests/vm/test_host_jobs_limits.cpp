// Jobs in states with limits, and in sandboxes.
#include <doctest/doctest.h>

#include <string>

#include "tests/vm/host.h"

namespace {

perigee_job* start(LimitedHost& host, const std::string& body) {
  REQUIRE(host.run("function work() " + body + " end") == PERIGEE_OK);
  perigee_job* job = nullptr;
  REQUIRE(perigee_job_start(host.state, "work", nullptr, 0, &job) == PERIGEE_OK);
  return job;
}

// Steps until the job is done or a step fails. Returns what the last step returned.
perigee_status finish(perigee_job* job, int64_t budget_us) {
  for (int done = 0; !done;)
    if (const perigee_status status = perigee_job_step(job, budget_us, &done)) return status;
  return PERIGEE_OK;
}

}  // namespace

TEST_CASE("host jobs: no script swallows the end of its slice's instructions or time") {
  for (bool timed : {false, true}) {
    LimitedHost host([&](perigee_state_config& c) {
      (timed ? c.time_limit_us = 5000 : c.instruction_limit = 300000);
      c.sandboxed = timed;
    });
    for (const char* script : stubborn_scripts) {
      CAPTURE(std::string(script));
      perigee_job* job = start(host, script);
      CHECK(finish(job, 60'000'000) == PERIGEE_BUDGET_EXCEEDED);
      int done = 0;
      CHECK(perigee_job_step(job, 0, &done) == PERIGEE_BUDGET_EXCEEDED);  // it has ended
      perigee_job_release(job);
      CHECK(host.works());
    }
  }
}

TEST_CASE("host jobs: release ends what never ends by itself") {
  for (bool sandboxed : {false, true}) {
    LimitedHost host([&](perigee_state_config& c) { c.sandboxed = sandboxed; });
    for (const char* script : stubborn_scripts) {
      CAPTURE(std::string(script));
      perigee_job* job = start(host, script);
      int done = 0;
      const perigee_status status = perigee_job_step(job, 300, &done);
      CHECK((status == PERIGEE_OK || status == PERIGEE_SCRIPT_ERROR));
      CHECK(!done);
      perigee_job_release(job);
      CHECK(host.works());
    }
  }
}

TEST_CASE("host jobs: memory limits, prints and files hold in a job") {
  LimitedHost host([](perigee_state_config& c) {
    c.sandboxed = 1;
    c.memory_limit = 64 << 20;
  });
  perigee_job* job = start(host, "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end");
  CHECK(finish(job, 1000) == PERIGEE_OUT_OF_MEMORY);
  perigee_job_release(job);
  CHECK(host.works());
  job = start(host,
              "local pg = require 'perigee' local t = {} for i = 1, 1e9 do t[i] = pg.zeros(1000, 100) pg.yield() end");
  CHECK(finish(job, 0) == PERIGEE_OUT_OF_MEMORY);
  perigee_job_release(job);
  CHECK(host.works());
  host.printed.clear();
  job = start(host,
              "local pg = require 'perigee' print('one') pg.yield() print('two') "
              "assert(not pcall(pg.load, '/etc/passwd')) pg.print('x', pg.ones(2))");
  CHECK(finish(job, 0) == PERIGEE_OK);
  perigee_job_release(job);
  CHECK(host.printed.find("one\ntwo\n") == 0);
  CHECK(host.printed.find("{1, 1}") != std::string::npos);
}
