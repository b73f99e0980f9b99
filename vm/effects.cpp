// pg.print and x:tap inside graphs: the hooks that the kernels of print_value and call_value call.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "tensor/effects.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/output.h"

namespace pg::vm {
namespace {

Value copy_of(const View& view) {
  Value out = make_array(*view.type);
  std::memcpy(out.array().data(), view.data, bytes_of(*view.type).count());
  return out;
}

// Gives text to the host that takes the prints of this call. Returns false if there is none.
bool write_to_host(std::string_view text) {
  const Output* output = Output::current;
  if (output && output->write && !text.empty()) output->write(output->user, text.data(), text.size());
  return output != nullptr;
}

void print_hook(const std::string& label, const View& view) {
  std::string text = printed(copy_of(view)) + "\n";
  if (!label.empty()) text = label + (view.rank() == 0 ? " " : "\n") + text;
  print_out(text);
}

// write_to_host(text) → whether a host took it in place of the standard streams.
int write_to_host_of(lua_State* L, State& state) {
  lua_pushboolean(L, write_to_host(check_string(L, state, 1, "print", "text")));
  return 1;
}

// Callback functions by number. They are kept until their state closes, since programs may refer to them that long.
struct Callback {
  State* state;
  Reference function;
};
struct Callbacks {
  std::mutex mutex;
  std::unordered_map<int64_t, Callback> all;
  int64_t next = 1;
};
Callbacks& callbacks() {
  static auto* instance = new Callbacks;
  return *instance;
}

void call_hook(int64_t number, const View& view) {
  const Callback* found = nullptr;  // valid as long as its state
  {
    const std::lock_guard lock(callbacks().mutex);
    const auto at = callbacks().all.find(number);
    if (at != callbacks().all.end()) found = &at->second;
  }
  if (!found || !found->state->running)
    throw Error("tap: the function belongs to a Lua state that does not run this program");
  lua_State* L = found->state->running;
  const NestedCall nested(*found->state, "tap");
  const int top = lua_gettop(L);
  need_stack(L, 4, "tap");
  found->function.push(L);
  push_box(L, *found->state, copy_of(view));
  if (protected_call(L, 1, 0)) {
    const std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "tap: error in its function";
    lua_settop(L, top);
    note_reraise(L, *found->state, text);
    throw PositionedError(text);
  }
  lua_settop(L, top);
}

// callback(f) → the number of f.
int register_callback(lua_State* L, State& state) {
  lua_pushvalue(L, 1);
  Callback entry{&state, Reference(L, state)};
  const std::lock_guard lock(callbacks().mutex);
  callbacks().all.emplace(callbacks().next, std::move(entry));
  lua_pushnumber(L, double(callbacks().next++));
  return 1;
}

}  // namespace

void print_out(std::string_view text) {
  if (!write_to_host(text)) std::fwrite(text.data(), 1, text.size(), stdout);
}

void forget_callbacks(State& state) {
  const std::lock_guard lock(callbacks().mutex);
  std::erase_if(callbacks().all, [&](const auto& entry) { return entry.second.state == &state; });
}

void open_effects(lua_State* L, State& state) {
  static std::once_flag once;  // states may open in several threads
  std::call_once(once, [] { effect_hooks() = {print_hook, call_hook}; });
  register_functions(L, state, {{"callback", entry<register_callback>}, {"write_to_host", entry<write_to_host_of>}});
}

}  // namespace pg::vm
