// A host with one runtime and one state, for tests of the C API.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "vm/include/perigee.h"

struct LimitedHost {
  perigee_runtime* runtime = nullptr;
  perigee_state* state = nullptr;
  std::string printed;

  // set(config) changes the config of the state.
  explicit LimitedHost(const std::function<void(perigee_state_config&)>& set) {
    auto config = PERIGEE_INIT(perigee_runtime_config);
    config.threads = 1;
    REQUIRE(perigee_runtime_create(&config, &runtime) == PERIGEE_OK);
    auto options = PERIGEE_INIT(perigee_state_config);
    options.user = this;
    options.print = [](void* user, const char* text, size_t size) {
      static_cast<LimitedHost*>(user)->printed.append(text, size);
    };
    set(options);
    REQUIRE(perigee_state_open(runtime, &options, &state) == PERIGEE_OK);
  }
  LimitedHost(const LimitedHost&) = delete;
  ~LimitedHost() {
    perigee_state_close(state);
    perigee_runtime_release(runtime);
  }

  perigee_status run(const std::string& text) { return perigee_run(state, text.data(), text.size(), "host.lua"); }
  static std::string message() { return perigee_last_error()->message; }
  // Whether the state computes as it should.
  bool works() {
    return run("local pg = require 'perigee' assert((pg.ones(3, 4) * 2):sum():item() == 24)") == PERIGEE_OK;
  }
};
