// Ctrl-C. The first press asks the running Lua code, and the ops it calls, to stop with the error "interrupted". From
// then on every op and every instruction of a script raises it, so that no pcall keeps it, until clear_interrupt.
#pragma once
#include <lua.hpp>

namespace pg::repl {

enum class InterruptMode {
  kScript,  // the error unwinds the whole script; what does not stop in time, or a second press, ends with 130
  kPrompt,  // the error unwinds to the prompt; only repeated presses end the program
};

// Takes over SIGINT and SIGALRM for this Lua state; the calling thread is the one that runs Lua.
void install_interrupts(lua_State* L);
void set_interrupt_mode(InterruptMode mode);

// True when SIGINT came since the last clear_interrupt.
bool interrupted();

// Forgets a request. Call it where no script runs: before and after each piece of code.
void clear_interrupt();

// Waits until standard input has something to read, or its end; false when SIGINT came first, also just before.
bool wait_for_input();

// Gives the signals back to the system.
void remove_interrupts();

inline constexpr int kInterruptedExit = 130;

}  // namespace pg::repl
