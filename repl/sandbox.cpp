// perigee --sandbox: a host of the C API with one sandboxed state.
#include "repl/sandbox.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <lua.hpp>
#include <string>

#include "repl/script.h"
#include "vm/include/perigee.h"

namespace pg::repl {
namespace {

constexpr uint64_t kMemory = uint64_t(1) << 30;

bool read_script(const std::string& path, std::string& text) {
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    return true;
  }
  std::ifstream file(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof();
}

int report_last() {
  const perigee_error* error = perigee_last_error();
  std::string text = error->message;
  if (*error->traceback) text += std::string("\nstack traceback:\n") + error->traceback;
  while (text.ends_with('\n')) text.pop_back();
  report(text.c_str());
  return 1;
}

// Sets `arg` as the program does without --sandbox, from the script on. The state has a gibibyte of memory.
void set_arguments(lua_State* L, int argc, char** argv, int script) {
  lua_createtable(L, argc - script, 1);
  for (int i = script; i < argc; ++i) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

int run(perigee_state* state, int argc, char** argv, int script) {
  std::string text;
  if (!read_script(argv[script], text)) {
    report((std::string("cannot open ") + argv[script]).c_str());
    return 1;
  }
  set_arguments(perigee_state_lua(state), argc, argv, script);
  const std::string name = std::string(argv[script]) == "-" ? "stdin" : argv[script];
  return perigee_run(state, text.data(), text.size(), name.c_str()) == PERIGEE_OK ? 0 : report_last();
}

}  // namespace

int run_sandboxed(int argc, char** argv, int script) {
  perigee_runtime* runtime = nullptr;
  perigee_state* state = nullptr;
  auto config = PERIGEE_INIT(perigee_state_config);
  config.sandboxed = 1;
  config.memory_limit = kMemory;
  config.print = [](void*, const char* line, size_t size) { std::fwrite(line, 1, size, stdout); };
  int code = 1;
  if (perigee_runtime_create(nullptr, &runtime) == PERIGEE_OK &&
      perigee_state_open(runtime, &config, &state) == PERIGEE_OK)
    code = run(state, argc, argv, script);
  else
    report_last();
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  return code;
}

}  // namespace pg::repl
