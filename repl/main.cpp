// The program: reads the command line, runs the scripts that it names, and opens the prompt on a terminal.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <lua.hpp>
#include <luajit.h>
#include <new>
#include <string>
#include <string_view>

#include "graph/passes/passes.h"
#include "repl/command.h"
#include "repl/help.h"
#include "repl/interrupt.h"
#include "repl/options.h"
#include "repl/output.h"
#include "repl/prompt.h"
#include "repl/sandbox.h"
#include "repl/script.h"
#include "repl/source.h"
#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/runtime.h"
#include "tensor/settings.h"
#include "tensor/thread_pool.h"
#include "vm/bindings.h"
#include "vm/call_depth.h"

namespace pg::repl {
namespace {

// Sets the table `arg`: the script at 0, its arguments after it, the program and its options before it.
void set_arguments(lua_State* L, int argc, char** argv, int script) {
  lua_createtable(L, argc - script, script + 1);
  for (int i = 0; i < argc; ++i) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

// Whether the script is read from standard input.
bool reads_input(int argc, char** argv, int script) { return script >= argc || std::string(argv[script]) == "-"; }

bool run_script(lua_State* L, int argc, char** argv, int script) {
  const bool from_input = reads_input(argc, argv, script);
  if (!from_input) {
    if (!check_source(argv[script])) return false;
    add_script_folder(L, argv[script]);
  }
  const int args = std::max(0, argc - script - 1);
  luaL_checkstack(L, args + 8, "too many arguments");
  for (int i = script + 1; i < argc; ++i) lua_pushstring(L, argv[i]);
  return run_file(L, from_input ? nullptr : argv[script], args);
}

// Runs -e and -l in the order in which they were given.
bool run_steps(lua_State* L, const CommandLine& line) {
  for (const GivenOption& given : line.options) {
    const std::string_view name = given.row->name();
    if (name == "-e" && !run_text(L, given.value, "=(command line)")) return false;
    if (name == "-l" && !run_module(L, given.value)) return false;
  }
  return true;
}

// Runs the text or the @FILE of an environment variable, if it is set.
bool run_variable(lua_State* L, const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return true;
  if (*text != '@') return run_text(L, text, (std::string("=") + name).c_str());
  if (!check_source(text + 1) || !run_file(L, text + 1, 0)) return false;
  lua_settop(L, 0);
  return true;
}

// PERIGEE_INIT sees pg and help, which are removed again unless the script has them too.
bool run_variables(lua_State* L, bool presets) {
  if (!run_variable(L, "LUA_INIT")) return false;
  const char* const own = std::getenv("PERIGEE_INIT");
  if (!own || !*own) return true;
  if (!set_globals(L, false) || !run_variable(L, "PERIGEE_INIT")) return false;
  for (const char* name : {"pg", "help"})
    if (!presets) lua_pushnil(L), lua_setglobal(L, name);
  return true;
}

// Calls pg.utils.seed_all.
bool seed_all(lua_State* L, const std::string& seed) {
  return run_text(L, "require('perigee').utils.seed_all(" + seed + ")", "=--seed");
}

// Does what the options say that apply to scripts and to sub-commands.
bool prepare_state(lua_State* L, const CommandLine& line, bool presets) {
  add_harness(L);
  const std::string* const compiler = line.find("-j");
  if (compiler) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | (*compiler == "on" ? LUAJIT_MODE_ON : LUAJIT_MODE_OFF));
  if (const std::string* seed = line.find("--seed"); seed && !seed_all(L, *seed)) return false;
  const bool runs_scripts = line.command->place & (kScript | kTest | kBench);
  if (runs_scripts && !line.has("-E") && !run_variables(L, presets)) return false;
  return !line.has("--strict") || call_tool(L, "strict", "start");
}

int exit_code(bool ok) { return ok ? 0 : interrupted() ? kInterruptedExit : 1; }

bool print_version() {
  try {
    check_settings();  // one of them limits the instruction set
    check_pass_settings();
  } catch (const Error& wrong) {
    report(wrong.what());
    return false;
  }
  return std::printf("perigee %s (%s, %s)\n", PERIGEE_VERSION, LUAJIT_VERSION, cpu_instruction_set()) > 0;
}

// Returns the exit code.
int run_program_steps(lua_State* L, int argc, char** argv, const CommandLine& line) {
  const bool terminal = isatty(STDIN_FILENO);
  const bool has_script = line.rest < argc, has_text = line.has("-e");
  const bool idle = !has_script && !has_text && !line.has("-v");
  const bool prompt = line.has("-i") || (idle && terminal);
  if (line.has("-v") && !print_version()) return 1;
  set_arguments(L, argc, argv, line.rest);
  const bool runs_script = has_script || (idle && !prompt);
  const bool presets = prompt || has_text || (runs_script && reads_input(argc, argv, line.rest));
  if (!prepare_state(L, line, presets) || (presets && !set_globals(L, prompt))) return exit_code(false);
  const std::string* const profile = line.find("--profile");
  if (profile && !call_tool(L, "profile", "start", *profile)) return exit_code(false);
  bool ok = run_steps(L, line);
  if (ok && runs_script) {
    ok = run_script(L, argc, argv, line.rest) || (prompt && !interrupted());
    lua_settop(L, 0);
  }
  if (ok && prompt) run_prompt(L);
  const int code = exit_code(ok);
  clear_interrupt();
  if (profile && !call_tool(L, "profile", "finish") && !code) return 1;
  return code;
}

std::terminate_handler other_endings;

void end_without_memory() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    static const char text[] = "perigee: out of memory\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(2);
    _exit(1);
  } catch (...) {}
  other_endings();
}

// Runs before the constructors of shared libraries: those of oneDNN 3 throw if the address space is too small.
void prepare() { other_endings = std::set_terminate(end_without_memory); }
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = prepare;

// Returns what is wrong with options that the parser accepts one by one, or "".
std::string conflict(const CommandLine& line, bool has_script) {
  const std::string* const threads = line.find("--threads");
  if (threads && (std::stoll(*threads) < 1 || std::stoll(*threads) > ThreadPool::kMaxThreads))
    return "--threads: expected 1 to " + std::to_string(ThreadPool::kMaxThreads) + ", got " + *threads;
  if (line.command->place != kScript || !line.has("--sandbox")) return "";
  for (const char* name : {"-e", "-l", "-i", "-j", "-v", "--strict", "--profile"})
    if (line.has(name)) return std::string(name) + " does not go with --sandbox";
  return has_script ? "" : "--sandbox: the script is missing (- for standard input)";
}

// Returns a new Lua state with its libraries, or null.
lua_State* open_state(bool with_environment) {
  lua_State* L = luaL_newstate();
  if (!L) return nullptr;
  if (!with_environment) {  // package reads the paths when it is opened
    lua_pushboolean(L, true);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
  }
  const int status = lua_cpcall(
      L, [](lua_State* s) { return vm::open_libraries(s), 0; }, nullptr);
  return status ? nullptr : L;
}

int run_in_state(int argc, char** argv, const CommandLine& line) {
  const StackBase stack;
  lua_State* L = open_state(!line.has("-E"));
  if (!L) {
    report("out of memory");
    return 1;
  }
  install_interrupts(L);
  int code = 0;
  if (line.command->place == kScript) {
    code = run_program_steps(L, argc, argv, line);
  } else {
    const bool ready = prepare_state(L, line, false);
    code = ready ? run_command(L, line) : 1;
    if (code && interrupted()) code = kInterruptedExit;
  }
  clear_interrupt();
  remove_interrupts();
  lua_close(L);
  return code;
}

int run_program(int argc, char** argv) {
  CommandLine line;
  std::string wrong = read_command_line(argc, argv, line);
  if (wrong.empty() && !line.has("-h")) wrong = conflict(line, line.rest < argc);
  watch_output(line.has("--time"));
  if (!wrong.empty()) return report(wrong.c_str()), 1;
  if (line.has("-h")) return std::fputs(help_text(*line.command).c_str(), stdout), 0;
  if (const std::string* kind = line.find("--generate")) return std::fputs(generated_text(*kind).c_str(), stdout), 0;
  if (line.has("--sandbox")) return run_sandboxed(argc, argv, line);
  if (const std::string* n = line.find("--threads")) Runtime::current().threads().resize(std::stoll(*n));
  return run_in_state(argc, argv, line);
}

}  // namespace
}  // namespace pg::repl

int main(int argc, char** argv) { return pg::repl::run_program(argc, argv); }
