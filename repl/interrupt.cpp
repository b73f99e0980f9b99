// How each kind of code is stopped, measured on Debian's LuaJIT (2022-03-20), which calls no hook from compiled code.
//
// Interpreted Lua: a hook at every instruction raises the error, in less than 1 ms. It stays set until the outermost
// level, so that code after a pcall is stopped at its next instruction. Code of the library continues for kLibraryTime,
// so that it can restore its state.
//
// Ops and kernels poll a flag (Context::cancel) between ops, between the pieces of parallel_for and between library
// calls, which take at most a tenth of a second. They stop in less than 0.2 s.
//
// Compiled Lua checks a flag at the start of each trace, and so in each turn of a loop, because it is compiled for
// LuaJIT's profiler. The profiler's signal sets the flag, and the hook follows. It costs a test of a byte per turn and
// source line. While a script runs a profiler of its own, compiled loops are not stopped.
//
// Blocking calls return with EINTR, or are ended after kPatience in a script, without a position.
#include "repl/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <luajit.h>

#include "repl/script.h"
#include "vm/traceback.h"
#include "tensor/parallel.h"
#include "vm/job.h"
#include "vm/state.h"

namespace pg::repl {
namespace {

constexpr int64_t kPatience = 300;     // milliseconds until the program ends if a script cannot be stopped
constexpr int64_t kRetryTime = 5;      // milliseconds until compiled code is stopped again
constexpr int64_t kLibraryTime = 50;   // milliseconds for the library to restore its state
constexpr int64_t kForcedTime = 1000;  // at the prompt, milliseconds and presses after which the program ends
constexpr int64_t kOnePress = 50;      // milliseconds in which several signals are one press
constexpr int kForcedPresses = 3;

// Signal handlers get no user data, so this file has globals. The program has one Lua state.
lua_State* lua = nullptr;
vm::State* state = nullptr;
pthread_t lua_thread;
std::atomic<InterruptMode> mode{InterruptMode::kScript};
std::atomic<bool> seen{false};
char raised_at[128] = "";  // where the script was interrupted
std::atomic<int> presses{0};
std::atomic<int64_t> first_press{0};
alignas(16) char signal_stack[64 << 10];

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void set_timer(int64_t milliseconds) {
  itimerval timer = {};
  timer.it_value.tv_usec = milliseconds * 1000;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

bool in_library(lua_State* L, lua_Debug* at) {
  return lua_getinfo(L, "S", at) && vm::is_library_source(at->source) && !vm::is_interpreter_source(at->source);
}

void raise_interrupted(lua_State* L, lua_Debug* at) {
  if (!seen) return void(vm::Job::stop_here(L));
  if (in_library(L, at) && now() - first_press < kLibraryTime) return;
  if (!*raised_at && lua_getinfo(L, "Sl", at) && at->currentline > 0)
    std::snprintf(raised_at, sizeof raised_at, "%s:%d", at->short_src, at->currentline);
  vm::push_error(L, "interrupted");
  lua_error(L);
}

// Ends the program from a handler. While a kernel runs, the Lua stack and stdio are consistent. A message handler that
// the interrupt has called runs without hooks; it may have no end.
[[noreturn]] void leave() {
  const bool at_rest = inside_poll_scope();
  if (at_rest) std::fflush(nullptr);
  write_interrupted(at_rest ? lua : nullptr, !at_rest && *raised_at ? raised_at : nullptr);
  _exit(kInterruptedExit);
}

// A script's use of jit.profile takes the handler away. The signal would then end the process.
bool profiler_listens() {
  struct sigaction action = {};
  return sigaction(SIGPROF, nullptr, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

// Sets the hook, and makes compiled code return to the interpreter by LuaJIT's handler of the profiler's signal. That
// does nothing while a finalizer runs, and may undo the hook if it interrupts itself, so this is called again later.
void stop_lua() {
  vm::set_polling_hook(lua, *state);
  if (profiler_listens()) raise(SIGPROF);
  set_timer(kRetryTime);
}

void look_again(int, siginfo_t*, void*) {
  if (!pthread_equal(pthread_self(), lua_thread)) {
    pthread_kill(lua_thread, SIGALRM);
    return;
  }
  if (!seen) return;
  const int error = errno;
  if (mode == InterruptMode::kScript && now() - first_press >= kPatience) leave();
  stop_lua();
  errno = error;
}

bool is_last_press() {
  if (mode == InterruptMode::kScript) return presses > 1;
  return presses >= kForcedPresses && now() - first_press >= kForcedTime;
}

void handle(int, siginfo_t*, void*) {
  if (!pthread_equal(pthread_self(), lua_thread)) {
    pthread_kill(lua_thread, SIGINT);
    return;
  }
  if (presses > 0 && now() - first_press < kOnePress) return;
  const int error = errno;
  if (++presses == 1) first_press = now();
  if (is_last_press()) leave();
  seen = true;
  state->ctx.cancels_all = true;
  state->ctx.cancel = true;
  stop_lua();
  errno = error;
}

using Handler = void (*)(int, siginfo_t*, void*);

// Handlers run on a separate stack, because generated code of libraries may use the stack pointer for other data.
// SA_RESTART is not set, so that a blocked read returns.
void set_handler(int number, Handler handler) {
  struct sigaction action = {};
  if (handler) {
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  } else {
    action.sa_handler = SIG_DFL;
  }
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

// Starts the profiler, without the timer that would send its signal.
void compile_for_interrupts(lua_State* L) {
  luaJIT_profile_start(
      L, "l", [](void*, lua_State*, int, int) {}, nullptr);
  const itimerval never = {};
  setitimer(ITIMER_PROF, &never, nullptr);
}

}  // namespace

void install_interrupts(lua_State* L) {
  lua = L;
  state = &vm::find_state(L);
  lua_thread = pthread_self();
  state->polling_hook = raise_interrupted;
  compile_for_interrupts(L);
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {  // a sanitizer may have set one
    stack = {signal_stack, 0, sizeof signal_stack};
    sigaltstack(&stack, nullptr);
  }
  set_handler(SIGINT, handle);
  set_handler(SIGALRM, look_again);
}

void set_interrupt_mode(InterruptMode m) { mode = m; }
bool interrupted() { return seen; }

void clear_interrupt() {
  set_timer(0);
  if (mode == InterruptMode::kPrompt && !profiler_listens()) compile_for_interrupts(lua);
  if (seen) std::clearerr(stdout);  // a signal ends a blocked write; that is no failure of the output
  seen = false;
  *raised_at = 0;
  if (lua_gethook(lua) == raise_interrupted) vm::set_hook(lua, *state, nullptr, 0, 0);
  state->ctx.cancels_all = false;
  state->ctx.cancel = false;
  presses = 0;
}

bool wait_for_input() {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);  // ppoll unblocks it atomically
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  int ready = 0;
  while (!seen && ((ready = ppoll(&input, 1, nullptr, &before)) < 0 && errno == EINTR)) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !seen;
}

void remove_interrupts() {
  set_timer(0);
  set_handler(SIGINT, nullptr);
  set_handler(SIGALRM, nullptr);
}

}  // namespace pg::repl
