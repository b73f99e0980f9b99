// Jobs in states with limits, and in sandboxes.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/vm/host.h"

namespace {

perigee_job* start(LimitedHost& host, const std::string& body) {
  REQUIRE(host.completes("function work() " + body + " end"));
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

// Of this process.
int thread_count() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  return -1;
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

// Jobs that are garbage are freed while the state, or another job, ends them.
TEST_CASE("host jobs: a memory limit at any size leaves jobs and states sound") {
  for (uint64_t limit = 300'000; limit < 360'000; limit += 1500) {
    perigee_runtime* runtime = nullptr;
    REQUIRE(perigee_runtime_create(nullptr, &runtime) == PERIGEE_OK);
    auto config = PERIGEE_INIT(perigee_state_config);
    config.memory_limit = limit;
    for (int i = 0; i < 3; ++i) {
      perigee_state* state = nullptr;
      if (perigee_state_open(runtime, &config, &state) != PERIGEE_OK) break;
      const std::string text =
          "local pg = require 'perigee' for i = 1, 5 do pg.job(function() while true do pg.yield() end end):step(0) "
          "end";
      const perigee_status status = perigee_run(state, text.data(), text.size(), "jobs.lua");
      CHECK((status == PERIGEE_OK || status == PERIGEE_OUT_OF_MEMORY || status == PERIGEE_SCRIPT_ERROR));
      perigee_state_close(state);
    }
    perigee_runtime_release(runtime);
  }
}

TEST_CASE("host jobs: a job that steps another one ends its slice in time, and both end") {
  const char* const nested =
      "local pg = require 'perigee' local c "
      "local b = pg.job(function() c = pg.job(function() while true do end end) while true do c:step(0) end end) "
      "for i = 1, 20 do b:step(0.0005) end count = 20";
  for (int limited = 0; limited < 2; ++limited) {
    LimitedHost host([&](perigee_state_config& c) {
      c.sandboxed = limited;
      c.time_limit_us = limited ? 20'000 : 0;
    });
    const perigee_status status = host.run(nested);
    CHECK((status == PERIGEE_OK || (limited && status == PERIGEE_BUDGET_EXCEEDED)));
    CHECK(host.works());
  }
  LimitedHost host([](perigee_state_config& c) { c.time_limit_us = 20'000; });
  CHECK(host.run("local pg = require 'perigee' local function f() pg.job(f):step(1) while true do end end f()") ==
        PERIGEE_BUDGET_EXCEEDED);
}

TEST_CASE("host jobs: garbage has no threads for long, and a sandbox has a number of them") {
  LimitedHost host([](perigee_state_config& c) { c.sandboxed = 1; });
  REQUIRE(host.run("local pg = require 'perigee' function left() "
                   "for i = 1, 150 do pg.job(function() while true do end end):step(0) end end "
                   "function kept() local all = {} for i = 1, 210 do "
                   "all[i] = pg.job(function() while true do end end) all[i]:step(0) end end") == PERIGEE_OK);
  REQUIRE(perigee_call(host.state, "left", nullptr, 0, nullptr, 0, nullptr) == PERIGEE_OK);
  CHECK(thread_count() < 100);
  perigee_gc_step(host.state, 10'000'000);
  perigee_gc_step(host.state, 10'000'000);
  CHECK(thread_count() < 20);
  CHECK(perigee_call(host.state, "kept", nullptr, 0, nullptr, 0, nullptr) == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("at most 200 jobs") != std::string::npos);
  CHECK(host.works());
}

#ifndef __SANITIZE_THREAD__  // which supports no new threads in a fork of a process with threads
TEST_CASE("host jobs: a forked child has jobs of its own, and closes the state") {
  LimitedHost host([](perigee_state_config&) {});
  perigee_job* job = start(host, "while true do end");
  int done = 0;
  REQUIRE(perigee_job_step(job, 0, &done) == PERIGEE_OK);
  REQUIRE(
      host.run("function child() local j = require('perigee').job(function() while true do end end) j:step(0) end") ==
      PERIGEE_OK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int code = 0;
    code += perigee_job_step(job, 0, &done) == PERIGEE_BAD_ARGUMENT;
    code += perigee_call(host.state, "child", nullptr, 0, nullptr, 0, nullptr) == PERIGEE_OK;
    perigee_job_release(job);
    perigee_state_close(host.state);
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
  perigee_job_release(job);
}
#endif
