// What scripts of the library ask of the terminal and the clock.
#include <unistd.h>

#include <chrono>

#include "tensor/terminal.h"
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {
namespace {

// is_terminal(fd) → whether the file descriptor is a terminal.
int is_terminal(lua_State* L, State& state) {
  lua_pushboolean(L, isatty(int(check_integer(L, state, 1, "is_terminal", "fd"))));
  return 1;
}

// has_colours(fd) → whether text on the file descriptor may have colours.
int shows_colours(lua_State* L, State& state) {
  lua_pushboolean(L, has_colours(int(check_integer(L, state, 1, "has_colours", "fd"))));
  return 1;
}

// clock() → seconds of a clock that never goes back.
int read_clock(lua_State* L, State&) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  lua_pushnumber(L, now.count());
  return 1;
}

}  // namespace

void open_terminal(lua_State* L, State& state) {
  register_functions(
      L, state,
      {{"is_terminal", entry<is_terminal>}, {"has_colours", entry<shows_colours>}, {"clock", entry<read_clock>}});
}

}  // namespace pg::vm
