#include "repl/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "vm/state.h"

namespace pg::repl {
namespace {

constexpr unsigned kPatience = 2;            // seconds until a script that does not answer is ended
constexpr int kForcedPresses = 3;            // so many presses that nothing answers end the program
constexpr int kCleanUpInstructions = 100000;  // Lua instructions between two errors at the prompt, less each time, so that
constexpr int kCleanUps = 20;                 // a loop around pcall is not hit at the same place; in the end every one

// Handlers have no argument of their own, so this is the one place with globals; one program, one state.
lua_State* lua = nullptr;
std::atomic<bool>* cancel = nullptr;
pthread_t lua_thread;
std::atomic<InterruptMode> mode{InterruptMode::kScript};
std::atomic<bool> seen{false};
std::atomic<int> unanswered{0};
int raised = 0;  // errors since the last request

constexpr int kEveryEvent = LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT;

void raise_interrupted(lua_State* L, lua_Debug*) {
  const bool first = unanswered.exchange(0) > 0;
  const bool answered_by_op = first && !cancel->exchange(false);  // its error is on its way already
  alarm(0);
  if (mode == InterruptMode::kPrompt)
    lua_sethook(L, raise_interrupted, LUA_MASKCOUNT, ++raised < kCleanUps ? kCleanUpInstructions - raised * 4999 : 1);
  else
    lua_sethook(L, nullptr, 0, 0);
  if (answered_by_op) return;
  vm::push_error(L, "interrupted");
  lua_error(L);
}

// Nothing answered in time: a compiled loop, or a call that blocks.
void give_up(int) {
  if (*cancel) _exit(kInterruptedExit);
}

void handle(int) {
  if (!pthread_equal(pthread_self(), lua_thread)) {
    pthread_kill(lua_thread, SIGINT);
    return;
  }
  seen = true;
  const int presses = ++unanswered;
  if (presses >= (mode == InterruptMode::kScript ? 2 : kForcedPresses) && *cancel) _exit(kInterruptedExit);
  *cancel = true;
  lua_sethook(lua, raise_interrupted, kEveryEvent, 1);
  if (mode == InterruptMode::kScript) alarm(kPatience);
}

void set_handler(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // without SA_RESTART: a blocked read comes back
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void install_interrupts(lua_State* L) {
  lua = L;
  cancel = &vm::find_state(L).ctx.cancel;
  lua_thread = pthread_self();
  set_handler(SIGINT, handle);
  set_handler(SIGALRM, give_up);
}

void set_interrupt_mode(InterruptMode m) { mode = m; }
bool interrupted() { return seen; }

void clear_interrupt() {
  alarm(0);
  lua_sethook(lua, nullptr, 0, 0);
  *cancel = false;
  seen = false;
  unanswered = 0;
  raised = 0;
}

bool wait_for_input() {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);  // ppoll lets it through again, without a gap
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  int ready = 0;
  while (!seen && ((ready = ppoll(&input, 1, nullptr, &before)) < 0 && errno == EINTR)) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !seen;
}

void remove_interrupts() {
  alarm(0);
  set_handler(SIGINT, SIG_DFL);
  set_handler(SIGALRM, SIG_DFL);
}

}  // namespace pg::repl
