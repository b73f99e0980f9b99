#include "vm/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

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

bool has_colours(int fd) {
  const char *forbidden = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return !(forbidden && *forbidden) && terminal && *terminal && std::strcmp(terminal, "dumb") != 0 && isatty(fd);
}

int terminal_width() {
  winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void open_terminal(lua_State* L, State& state) {
  register_functions(
      L, state,
      {{"is_terminal", entry<is_terminal>}, {"has_colours", entry<shows_colours>}, {"clock", entry<read_clock>}});
}

}  // namespace pg::vm
