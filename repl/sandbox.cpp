// perigee --sandbox: a host of the C API with one sandboxed state.
#include "repl/sandbox.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <lua.hpp>
#include <string>

#include "repl/script.h"
#include "repl/source.h"
#include "vm/include/perigee.h"

namespace pg::repl {
namespace {

constexpr uint64_t kMemory = uint64_t(1) << 30;

bool read_script(const std::string& path, std::string& text) {
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    return true;
  }
  if (!check_source(path)) return false;
  std::ifstream file(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(file), {});
  if (file.good() || file.eof()) return true;
  report(("cannot read '" + path + "'").c_str());
  return false;
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

int run(perigee_state* state, int argc, char** argv, const CommandLine& line) {
  const int script = line.rest;
  std::string text;
  if (!read_script(argv[script], text)) return 1;
  if (const std::string* seed = line.find("--seed")) {
    const std::string call = "require('perigee').utils.seed_all(" + *seed + ")";
    if (perigee_run(state, call.data(), call.size(), "--seed") != PERIGEE_OK) return report_last();
  }
  set_arguments(perigee_state_lua(state), argc, argv, script);
  const std::string name = std::string(argv[script]) == "-" ? "stdin" : argv[script];
  return perigee_run(state, text.data(), text.size(), name.c_str()) == PERIGEE_OK ? 0 : report_last();
}

}  // namespace

int run_sandboxed(int argc, char** argv, const CommandLine& line) {
  perigee_runtime* runtime = nullptr;
  auto threads = PERIGEE_INIT(perigee_runtime_config);
  if (const std::string* n = line.find("--threads")) threads.threads = std::stoi(*n);
  perigee_state* state = nullptr;
  auto config = PERIGEE_INIT(perigee_state_config);
  config.sandboxed = 1;
  config.memory_limit = kMemory;
  config.print = [](void*, const char* line, size_t size) { std::fwrite(line, 1, size, stdout); };
  int code = 1;
  if (perigee_runtime_create(&threads, &runtime) == PERIGEE_OK &&
      perigee_state_open(runtime, &config, &state) == PERIGEE_OK)
    code = run(state, argc, argv, line);
  else
    report_last();
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  return code;
}

}  // namespace pg::repl
