// Ctrl-C. The first press asks the running Lua code and the ops it calls to stop with the error "interrupted".
#pragma once
#include <lua.hpp>

namespace pg::repl {

enum class InterruptMode {
  kScript,  // the error unwinds the script, which may catch it; what does not answer within two seconds ends with 130
  kPrompt,  // the error unwinds to the prompt and comes again while Lua code keeps running
};

// Takes over SIGINT for this Lua state; the calling thread is the one that runs Lua.
void install_interrupts(lua_State* L);
void set_interrupt_mode(InterruptMode mode);

// True when SIGINT came since the last clear_interrupt.
bool interrupted();

// Forgets a request that was not answered. Call it before and after each piece of code.
void clear_interrupt();

// Waits until standard input has something to read, or its end; false when SIGINT came first, also just before.
bool wait_for_input();

// Gives SIGINT back to the system.
void remove_interrupts();

inline constexpr int kInterruptedExit = 130;

}  // namespace pg::repl
