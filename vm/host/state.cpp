// perigee_state_*, perigee_run and the protected calls of the C API.
#include "vm/host/state.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "vm/bindings.h"
#include "vm/call_depth.h"
#include "vm/job.h"
#include "vm/load.h"
#include "vm/lua_text.h"
#include "vm/output.h"
#include "vm/pattern.h"
#include "vm/sandbox.h"
#include "vm/traceback.h"

using namespace pg;
using namespace pg::host;

namespace {

std::string traceback_text(lua_State* L) {
  const vm::Traceback found = vm::traceback_of(L, 1);
  std::string text;
  for (size_t i = 0; i < found.frames.size(); ++i) {
    if (found.gap && i == found.gap) text += "...\n";
    text += found.frames[i].place + ": " + found.frames[i].what + "\n";
  }
  return text;
}

// What a protected call failed with. It is filled inside the call, while the stack of the error is there.
struct Caught {
  std::exception_ptr exception;  // of C++
  std::string message, traceback;
  bool failed = false;
};

// Message handler; its upvalue is the Caught. Errors inside it are errors in error handling, which lua_pcall reports.
int note_error(lua_State* L) {
  auto& caught = *static_cast<Caught*>(lua_touserdata(L, lua_upvalueindex(1)));
  lua_settop(L, 1);
  vm::push_error_text(L, 1);
  try {
    caught.message = lua_tostring(L, 2);
    caught.traceback = traceback_text(L);
    caught.failed = true;
  } catch (...) {
    caught.exception = std::current_exception();
  }
  return 1;
}

struct Protected {
  FunctionRef<void()> f;
  Caught* caught;
};

// Runs the function; what it throws passes Lua's frames as an error.
int run_protected(lua_State* L) {
  auto& task = *static_cast<Protected*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  try {
    task.f();
    return 0;
  } catch (const Error&) {
    task.caught->exception = std::current_exception();
  } catch (const std::bad_alloc&) {
    task.caught->exception = std::current_exception();
  }
  lua_pushnil(L);
  return lua_error(L);
}

// The extent of one call of the C API on a state.
class Entered {
 public:
  Entered(perigee_state& state, const char* function)
      : state_(state),
        runtime_(*state.runtime),
        account_(state.limits.account()),
        files_(state.uses_files() ? &state.files : nullptr),
        output_{state.config.print, state.config.user},
        outer_output_(vm::Output::current) {
    if (state.running.exchange(true))
      throw Failure(
          PERIGEE_BAD_ARGUMENT,
          fmt::format("{}: the state is in use, by another thread or by the caller of this callback", function));
    try {
      state.limits.begin(state.data ? &state.data->ctx : nullptr);
    } catch (...) {
      state.limits.end();
      state.running = false;
      throw;
    }
    vm::Output::current = state.has_config ? &output_ : nullptr;
  }
  Entered(const Entered&) = delete;
  ~Entered() {
    vm::Output::current = outer_output_;
    state_.limits.end();
    state_.running = false;
  }

 private:
  perigee_state& state_;
  const ScopedRuntime runtime_;
  const ScopedAccount account_;
  const ScopedFiles files_;
  const vm::Output output_;
  const vm::Output* const outer_output_;
  const StackBase stack_;
};

[[noreturn]] void rethrow(perigee_state& state, int code, Caught& caught) {
  const Limits& limits = state.limits;
  if (limits.ended() && !limits.message().empty())
    throw ScriptFailure(limits.reason(), limits.message(),
                        limits.traceback().empty() ? caught.traceback : limits.traceback());
  if (limits.ended()) {
    const std::string place = caught.traceback.substr(0, caught.traceback.find(": "));  // of the first frame
    throw ScriptFailure(limits.reason(), place.empty() ? limits.text() : place + ": " + limits.text(),
                        caught.traceback);
  }
  if (caught.exception) std::rethrow_exception(caught.exception);
  if (code == LUA_ERRMEM || is_lack_of_memory(caught.message))
    throw ScriptFailure(PERIGEE_OUT_OF_MEMORY, caught.failed ? caught.message : "not enough memory", caught.traceback);
  throw ScriptFailure(PERIGEE_SCRIPT_ERROR, caught.failed ? caught.message : "an error in error handling",
                      caught.traceback);
}

int write_lines(lua_State* L) {
  auto& state = *static_cast<perigee_state*>(lua_touserdata(L, lua_upvalueindex(1)));
  const int count = lua_gettop(L);
  vm::check_call_depth(L, "too many nested calls of print");
  lua_getglobal(L, "tostring");
  vm::LuaText line(L);
  for (int i = 1; i <= count; ++i) {
    lua_pushvalue(L, count + 1);
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    if (!lua_isstring(L, -1)) return luaL_error(L, "'tostring' must return a string to 'print'");
    line.add_value();
    line.add(i < count ? "\t" : "\n");
  }
  if (count == 0) line.add("\n");
  line.push();
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  vm::spend(L, size / vm::kBytesOfAnInstruction);
  if (state.config.print) state.config.print(state.config.user, text, size);
  return 0;
}

// A loader of package.loaders that asks the host.
int find_module(lua_State* L) {
  auto& state = *static_cast<perigee_state*>(lua_touserdata(L, lua_upvalueindex(1)));
  const char* name = luaL_checkstring(L, 1);
  const char* source = nullptr;
  size_t size = 0;
  if (!state.config.find_module(state.config.user, name, &source, &size) || !source)
    return lua_pushfstring(L, "\n\tthe host has no module '%s'", name), 1;
  if (size > 0 && source[0] == LUA_SIGNATURE[0]) return luaL_error(L, "module '%s' is bytecode", name);
  lua_pushfstring(L, "@%s", name);
  if (luaL_loadbufferx(L, source, size, lua_tostring(L, -1), "t")) return lua_error(L);
  return 1;
}

// Appends a searcher to the list on top of the stack.
void add_searcher(lua_State* L, lua_CFunction function) {
  lua_pushcclosure(L, function, 1);
  lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
}

// The host's modules, then the host's files, for a sandbox.
void set_sandbox_searchers(perigee_state& state) {
  lua_State* L = state.lua;
  vm::push_sandbox_searchers(L);
  if (state.config.find_module) {
    lua_pushlightuserdata(L, &state);
    add_searcher(L, find_module);
  }
  if (state.config.open_file) {
    lua_pushboolean(L, true);
    add_searcher(L, find_file_module);
  }
}

// After package.preload: the host's modules, then the host's files in place of those of the system.
void set_searchers(perigee_state& state) {
  lua_State* L = state.lua;
  if (state.config.sandboxed) return set_sandbox_searchers(state);
  if (!state.config.find_module && !state.config.open_file) return;
  lua_getglobal(L, "package");
  const int package = lua_gettop(L);
  lua_getfield(L, -1, "loaders");
  lua_createtable(L, 4, 0);
  lua_rawgeti(L, -2, 1);
  lua_rawseti(L, -2, 1);
  if (state.config.find_module) {
    lua_pushlightuserdata(L, &state);
    add_searcher(L, find_module);
  }
  if (state.config.open_file) {
    lua_pushboolean(L, false);
    add_searcher(L, find_file_module);
    lua_pushliteral(L, "?.lua;?/init.lua");
    lua_setfield(L, package, "path");
  } else {
    for (int i = 2, n = int(lua_objlen(L, -2)); i <= n; ++i) {
      lua_rawgeti(L, -2, i);
      lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
    }
  }
  lua_setfield(L, package, "loaders");
}

void set_callbacks(perigee_state& state) {
  lua_State* L = state.lua;
  if (state.has_config) {
    lua_pushlightuserdata(L, &state);
    lua_pushcclosure(L, write_lines, 1);
    if (state.config.sandboxed)
      vm::set_sandbox_print(L);
    else
      lua_setglobal(L, "print");
  }
  set_searchers(state);
}

// Neither another handle nor another copy of the library may use the Lua state of the host.
void refuse_other_uses(lua_State* L) {
  constexpr const char* kName = "perigee_state_attach";
  const bool main = lua_pushthread(L);
  need(main, kName, "lua", "the main thread of a Lua state, not a coroutine, which the collector may free");
  lua_getfield(L, LUA_GLOBALSINDEX, "setmetatable");
  need(lua_isfunction(L, -1), kName, "lua", "a Lua state with its standard libraries (luaL_openlibs)");
  lua_settop(L, 0);
  need(!Limits::has(L), kName, "lua", "a Lua state that no other perigee_state uses");
  lua_getglobal(L, "package");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "loaded");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "perigee");
  need(!lua_toboolean(L, -1) || lua_gettop(L) < 3 || vm::has_library(L), kName, "lua",
       "a Lua state that has not loaded perigee from a module, which is another copy of the library");
  lua_settop(L, 0);
}

void load_library(perigee_state& state) {
  lua_State* L = state.lua;
  if (!state.owned) refuse_other_uses(L);
  lua_pushcfunction(L, luaopen_perigee);
  lua_call(L, 0, 1);
  if (vm::is_sandbox(L)) {
    vm::add_sandbox_module(L, "perigee");
  } else {
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaded");
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "perigee");
  }
  state.data = &vm::find_state(L);
  if (!(state.data->ctx.runtime == state.runtime))
    throw Failure(PERIGEE_BAD_ARGUMENT, "perigee_state_attach: the Lua state uses perigee with another runtime");
}

void run_chunk(perigee_state* state, const char* function, const char* text, size_t size, const std::string& name) {
  need(text || size == 0, function, "text");
  need(size == 0 || text[0] != LUA_SIGNATURE[0], function, "text", "source, not bytecode");
  in_state(state, function, [&] {
    lua_State* L = state->lua;
    if (const int code = luaL_loadbuffer(L, text ? text : "", size, name.c_str())) {
      if (code == LUA_ERRMEM) throw std::bad_alloc();
      throw ScriptFailure(PERIGEE_SCRIPT_ERROR, lua_tostring(L, -1), "");
    }
    lua_call(L, 0, 0);
  });
}

std::string read_file(const char* path) {
  const auto fail = [&](perigee_status status) {
    throw Failure(status, fmt::format("perigee_run_file: '{}': {}", path, std::strerror(errno)));
  };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "rb"), std::fclose);
  if (!file && errno == ENOMEM) throw std::bad_alloc();
  if (!file) fail(errno == ENOENT || errno == ENOTDIR ? PERIGEE_NOT_FOUND : PERIGEE_BAD_FILE);
  std::string text;
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, file.get())) > 0;) text.append(block, n);
  if (std::ferror(file.get())) fail(PERIGEE_BAD_FILE);  // as for a folder
  if (text.starts_with('#')) text.insert(0, "--");      // a line for the shell
  return text;
}

void open_globals(const perigee_state_config& config, lua_State* L) {
  if (config.sandboxed)
    vm::open_sandbox(L);
  else
    vm::open_libraries(L);
  const int top = lua_gettop(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  if (!config.sandboxed) vm::set_load(L, false);
  if (config.sandboxed) vm::push_sandbox_library(L);
  for (; lua_gettop(L) > top; lua_pop(L, 1))
    if (config.open_file) set_file_functions(L, config.sandboxed != 0);
}

int refuse_exit(lua_State* L) {
  return luaL_error(L, "os.exit: the process belongs to a host; return from the script, or raise an error");
}

// No script ends the process.
void keep_process(lua_State* L) {
  lua_getglobal(L, "os");
  if (lua_istable(L, -1)) {
    lua_pushcfunction(L, refuse_exit);
    lua_setfield(L, -2, "exit");
  }
  lua_pop(L, 1);
}

std::string read_through_host(perigee_state& state, const char* path) {
  const std::unique_ptr<HostFile> file = state.files.open(path, "rb");
  if (!file) throw Failure(PERIGEE_NOT_FOUND, fmt::format("perigee_run_file: the host gives no file '{}'", path));
  try {
    return read_host_file(*file, path);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    throw Failure(PERIGEE_BAD_FILE, e.what());
  }
}

}  // namespace

void pg::host::in_state(perigee_state* state, const char* function, FunctionRef<void()> f) {
  need(state, function, "state");
  lua_State* L = state->lua;
  const Entered entered(*state, function);
  if (!lua_checkstack(L, 16)) throw std::bad_alloc();
  Caught caught;
  Protected task{f, &caught};
  struct Opening {
    Caught* caught;
    Protected* task;
    int status;
  } opening{&caught, &task, 0};
  const int top = lua_gettop(L);
  // The closure of the handler needs memory, so it is made in protected mode too.
  const int opened = lua_cpcall(
      L,
      [](lua_State* inner) {
        auto* o = static_cast<Opening*>(lua_touserdata(inner, 1));
        lua_pushlightuserdata(inner, o->caught);
        lua_pushcclosure(inner, note_error, 1);
        lua_pushcfunction(inner, run_protected);
        lua_pushlightuserdata(inner, o->task);
        o->status = lua_pcall(inner, 1, 0, -3);
        return 0;
      },
      &opening);
  lua_settop(L, top);
  state->limits.settle();
  const int code = opening.status ? opening.status : opened;
  if (code || state->limits.ended()) rethrow(*state, code, caught);
}

perigee_status perigee_state_open(perigee_runtime* runtime, const perigee_state_config* given, perigee_state** out) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_state_open";
    need(out, kName, "out");
    const Ref<Runtime> held(&runtime_of(runtime, kName));
    const perigee_state_config config = copy_config(given, kName);
    need(config.time_limit_us >= 0, kName, "config", "a time_limit_us of 0 or more");
    const ScopedRuntime scope(*held);
    lua_State* L = luaL_newstate();
    if (!L) throw std::bad_alloc();
    auto state = std::make_unique<perigee_state>(held, L, true, config);
    state->has_config = given != nullptr;
    state->limits.limit_memory();
    in_state(state.get(), kName, [&] {
      open_globals(config, L);
      load_library(*state);
      set_callbacks(*state);
      if (!config.sandboxed) keep_process(L);
      state->limits.protect(true);
    });
    *out = state.release();
  });
}

perigee_status perigee_state_attach(perigee_runtime* runtime, lua_State* lua, perigee_state** out) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_state_attach";
    need(out, kName, "out");
    need(lua, kName, "lua");
    const Ref<Runtime> held(&runtime_of(runtime, kName));
    auto state = std::make_unique<perigee_state>(held, lua, false, perigee_state_config{});
    in_state(state.get(), kName, [&] {
      load_library(*state);
      state->limits.protect(false);
    });
    *out = state.release();
  });
}

void perigee_state_close(perigee_state* state) {
  if (!state || state->running) return;
  const Ref<Runtime> runtime = state->runtime;
  const ScopedRuntime scope(*runtime);
  forget_jobs(*state);
  delete state;
}

lua_State* perigee_state_lua(perigee_state* state) { return state ? state->lua : nullptr; }

perigee_status perigee_run(perigee_state* state, const char* text, size_t size, const char* chunk_name) {
  return guarded(PERIGEE_INTERNAL, [&] {
    run_chunk(state, "perigee_run", text, size, std::string("@") + (chunk_name ? chunk_name : "chunk"));
  });
}

perigee_status perigee_run_file(perigee_state* state, const char* path) {
  return guarded(PERIGEE_INTERNAL, [&] {
    need(state, "perigee_run_file", "state");
    need(path, "perigee_run_file", "path");
    const std::string text = state->uses_files() ? read_through_host(*state, path) : read_file(path);
    run_chunk(state, "perigee_run_file", text.data(), text.size(), std::string("@") + path);
  });
}

void perigee_interrupt(perigee_state* state) {
  if (state && state->running) state->limits.interrupt();
}

perigee_status perigee_gc_step(perigee_state* state, int64_t budget_us) {
  return guarded(PERIGEE_INTERNAL, [&] {
    need(budget_us >= 0, "perigee_gc_step", "budget_us", "a number of microseconds");
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(std::min<int64_t>(budget_us, 1 << 30));
    in_state(state, "perigee_gc_step", [&] {
      while (!lua_gc(state->lua, LUA_GCSTEP, 1) && Clock::now() < end) {}
      vm::end_abandoned_jobs(state->lua, *state->data);
    });
  });
}

perigee_status perigee_memory(perigee_state* state, perigee_memory_info* info) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_memory";
    need(state, kName, "state");
    need(info && info->size >= sizeof(uint32_t), kName, "info", "a struct from PERIGEE_INIT");
    const MemoryStats pool = state->runtime->memory().stats();
    perigee_memory_info now = {};
    now.size = info->size;
    now.lua_bytes = uint64_t(lua_gc(state->lua, LUA_GCCOUNT, 0)) * 1024 + uint64_t(lua_gc(state->lua, LUA_GCCOUNTB, 0));
    now.tensor_bytes = uint64_t(std::max<int64_t>(0, state->data->live_bytes));
    now.cached_bytes = uint64_t(pool.cached);
    now.peak_bytes = uint64_t(pool.peak);
    now.tensors = uint64_t(std::max<int64_t>(0, state->data->tensors));
    std::memcpy(static_cast<void*>(info), &now, std::min(size_t(info->size), sizeof now));
  });
}
