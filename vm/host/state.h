// The handle of a Lua state.
#pragma once
#include <atomic>
#include <lua.hpp>

#include "vm/host/files.h"
#include "vm/host/handles.h"
#include "vm/host/limits.h"
#include "vm/state.h"

struct perigee_state {
  perigee_state(pg::Ref<pg::Runtime> runtime, lua_State* lua, bool owned, const perigee_state_config& config)
      : runtime(std::move(runtime)), lua(lua), owned(owned), config(config), limits(lua, config), files(config) {}
  perigee_state(const perigee_state&) = delete;
  ~perigee_state() {
    limits.leave();
    if (owned && lua) lua_close(lua);
  }

  const pg::Ref<pg::Runtime> runtime;
  lua_State* const lua;
  const bool owned;
  const perigee_state_config config;
  bool has_config = false;  // whether the host gave one: prints go to it then
  pg::vm::State* data = nullptr;
  pg::host::Limits limits;
  pg::host::CallbackFiles files;
  bool uses_files() const { return config.open_file || config.sandboxed; }
  std::atomic<bool> running{false};  // whether a call uses the state
  std::vector<perigee_job*> jobs;    // all whose handles are not released
};

namespace pg::host {

// Runs f() in protected mode. f may raise Lua errors and throw; both become exceptions here, with the traceback of
// where they were raised. The Lua stack is as before afterwards. Limits and interrupts hold in f.
void in_state(perigee_state* state, const char* function, FunctionRef<void()> f);

// Before the state is closed: ends its jobs. Their handles stay valid.
void forget_jobs(perigee_state& state);

}  // namespace pg::host
