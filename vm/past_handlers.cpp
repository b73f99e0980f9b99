#include "vm/past_handlers.h"

#include <chrono>

#include "vm/traceback.h"

namespace pg::vm {
namespace {

constexpr int kGcIsRunning = 9;  // LUA_GCISRUNNING of LuaJIT 2.1
// For LUA_GCRESTART: the next allocation makes a step. A pause from here on would put off a cycle for ever where calls
// are ended one after the other.
constexpr int kAtOnce = 0;

// An allocator that refuses one request and puts the former allocator back.
struct Refusal {
  lua_State* L;
  lua_Alloc allocate;
  void* data;
  bool collects;  // whether the collector was running
};

void* refuse_once(void* refusal, void* data, size_t old_size, size_t size) {
  const Refusal given = *static_cast<Refusal*>(refusal);
  if (size <= old_size) return given.allocate(given.data, data, old_size, size);
  lua_setallocf(given.L, given.allocate, given.data);
  if (given.collects) lua_gc(given.L, LUA_GCRESTART, kAtOnce);
  return nullptr;
}

}  // namespace

// The collector is stopped, so that no request of its own is the one that fails.
void raise_past_handlers(lua_State* L) {
  Refusal refusal{L, nullptr, nullptr, lua_gc(L, kGcIsRunning, 0) != 0};
  refusal.allocate = lua_getallocf(L, &refusal.data);
  lua_setallocf(L, refuse_once, &refusal);
  if (refusal.collects) lua_gc(L, LUA_GCSTOP, 0);
  lua_newuserdata(L, 16);
}

void end_script(lua_State* L, Grace& grace) {
  using namespace std::chrono;
  const int64_t now = duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
  if (grace.until == 0) grace.until = now + kGraceTime;
  lua_Debug at;
  const bool in_library = lua_getstack(L, 0, &at) && lua_getinfo(L, "S", &at) && is_library_source(at.source) &&
                          !is_interpreter_source(at.source);
  if (in_library && now < grace.until && grace.instructions-- > 0) return;
  raise_past_handlers(L);
}

}  // namespace pg::vm
