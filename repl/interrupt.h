// Ctrl-C. The first press makes the running Lua code and its ops raise the error "interrupted". Until clear_interrupt
// every op and every instruction of a script raises it again, so that a pcall cannot swallow it.
#pragma once
#include <lua.hpp>

namespace pg::repl {

enum class InterruptMode {
  kScript,  // the error unwinds the whole script; if that takes too long, or at a second press, the program exits with
            // code 130
  kPrompt,  // the error unwinds to the prompt; only repeated presses end the program
};

// Installs handlers of SIGINT and SIGALRM for this Lua state. The calling thread must be the one that runs Lua.
void install_interrupts(lua_State* L);
void set_interrupt_mode(InterruptMode mode);

// Whether SIGINT arrived since the last clear_interrupt.
bool interrupted();

// Clears a pending interrupt. Call it while no script runs: before and after each piece of code.
void clear_interrupt();

// Waits until standard input is readable or at its end. Returns false if SIGINT arrived before that.
bool wait_for_input();

// Restores the default handling of both signals.
void remove_interrupts();

inline constexpr int kInterruptedExit = 130;

}  // namespace pg::repl
