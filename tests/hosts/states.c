/* A host of the Lua module: states in threads, closed in another order and by another thread, a fork, and a second
 * life after all are closed. Compares the process before and after: signal handlers, locale, environment.
 *   states 'FOLDER/?.so' */
#include <lauxlib.h>
#include <locale.h>
#include <lualib.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 8, kSignals = 65 };
extern char** environ;

static const char* cpath;
static const char kUse[] =
    "local pg = require 'perigee' assert(require 'perigee' == pg) package.loaded.perigee = nil "
    "assert(pcall(require, 'perigee')) "
    "local w = pg.ones(200, 200):attach_grad() "
    "for i = 1, 5 do pg.record(function() return (w:matmul(w)):sum() end):backward() end "
    "assert(w.grad:sum():item() > 0) "
    "local f = pg.jit(function(x) return (x * 2):sum() end) assert(f(pg.ones(10)):item() == 20) kept = w";

static void fail(const char* what, const char* text) {
  fprintf(stderr, "%s: %s\n", what, text);
  exit(1);
}

static void use(lua_State* L) {
  if (luaL_dostring(L, kUse)) fail("perigee", lua_tostring(L, -1));
}

static lua_State* open_state(int stopped) {
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_pushstring(L, cpath);
  lua_setfield(L, -2, "cpath");
  lua_pop(L, 1);
  if (stopped) lua_gc(L, LUA_GCSTOP, 0);
  return L;
}

static void* work(void* place) {
  lua_State* L = *(lua_State**)place;
  use(L);
  return NULL;
}

struct process {
  void (*handlers[kSignals])(int);
  char locale[256];
  unsigned long environment;
};

static struct process look(void) {
  struct process now = {{0}, "", 5381};
  for (int i = 1; i < kSignals; ++i) {
    struct sigaction action;
    if (sigaction(i, NULL, &action) == 0) now.handlers[i] = action.sa_handler;
  }
  snprintf(now.locale, sizeof now.locale, "%s", setlocale(LC_ALL, NULL));
  for (char** line = environ; *line; ++line)
    for (char* c = *line; *c; ++c) now.environment = now.environment * 33 + (unsigned char)*c;
  return now;
}

int main(int argc, char** argv) {
  lua_State* states[kThreads];
  pthread_t threads[kThreads];
  int status = 0;
  if (argc < 2) return 2;
  cpath = argv[1];
  setlocale(LC_ALL, "");
  const struct process before = look();
  for (int i = 0; i < kThreads; ++i) states[i] = open_state(i % 2);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, &states[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  const pid_t child = fork();
  if (child == 0) {  /* old states and a new one */
    for (int i = 0; i < kThreads; ++i) use(states[i]);
    lua_State* own = open_state(0);
    use(own);
    for (int i = 0; i < kThreads; ++i) lua_close(states[i]);
    lua_close(own);
    _exit(0);
  }
  if (waitpid(child, &status, 0) != child || status) fail("fork", "the child failed");
  for (int i = 0; i < kThreads; ++i) lua_close(states[(i * 5 + 3) % kThreads]);
  for (int i = 0; i < 3; ++i) {  /* the library was unloaded, as far as it can be */
    lua_State* again = open_state(0);
    use(again);
    lua_close(again);
  }
  const struct process after = look();
  if (memcmp(before.handlers, after.handlers, sizeof before.handlers)) fail("changed", "signal handlers");
  if (strcmp(before.locale, after.locale)) fail("changed", "the locale");
  if (before.environment != after.environment) fail("changed", "the environment");
  puts("states ok");
  return 0;
}
