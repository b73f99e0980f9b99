// The program: reads the command line, runs the scripts that it names, and opens the prompt on a terminal.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <lua.hpp>
#include <luajit.h>
#include <new>
#include <string>
#include <vector>

#include "repl/interrupt.h"
#include "repl/prompt.h"
#include "repl/sandbox.h"
#include "repl/script.h"
#include "tensor/device.h"
#include "vm/bindings.h"

namespace pg::repl {
namespace {

struct Step {  // one -e or -l
  bool is_module;
  std::string text;
};

struct Options {
  std::vector<Step> steps;
  bool interactive = false;
  bool version = false;
  bool sandbox = false;
  int script = 0;  // index of the script in argv, or argc
};

std::vector<Step> read_steps(const CLI::App& app, const CLI::Option* code, const CLI::Option* module) {
  std::vector<Step> steps;
  size_t codes = 0, modules = 0;
  for (const CLI::Option* option : app.parse_order()) {
    if (option == code) steps.push_back({false, code->results()[codes++]});
    if (option == module) steps.push_back({true, module->results()[modules++]});
  }
  return steps;
}

void print_help(const CLI::App& app) {
  std::string text = app.help();
  const std::string options = "[OPTIONS]";
  if (const size_t at = text.find(options); at != std::string::npos)
    text.replace(at, options.size(), "[options] [script | -] [args]");
  std::fputs(text.c_str(), stdout);
}

// Reads the options before the script. Parsing ends at the first word that is no option, since later ones belong to the
// script. Returns false if the program must exit with `code`.
bool read_options(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Runs Lua scripts with tensors; without a script, the prompt.", "perigee"};
  app.prefix_command();
  app.set_help_flag("-h,--help", "print this help and exit");
  std::vector<std::string> texts, modules;
  CLI::Option* text = app.add_option("-e", texts, "run this text, with pg and help as globals")->option_text("TEXT");
  CLI::Option* module = app.add_option("-l", modules, "require this module")->option_text("MODULE");
  for (CLI::Option* option : {text, module}) option->expected(1)->take_all()->allow_extra_args(false);
  app.add_flag("-i", options.interactive, "open the prompt afterwards");
  app.add_flag("--sandbox", options.sandbox, "run the script without access to files and to the system");
  app.add_flag("-v,--version", options.version, "print the version");
  app.footer("The script is a file or - for standard input; arg and ... hold its arguments.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print_help(app);
    return false;
  } catch (const CLI::ParseError& e) {
    report((std::string(e.what()) + " (perigee -h lists the options)").c_str());
    code = 1;
    return false;
  }
  const std::vector<std::string> rest = app.remaining();
  options.script = argc - int(rest.size());
  if (!rest.empty() && rest[0] == "--") {
    ++options.script;
  } else if (!rest.empty() && rest[0].size() > 1 && rest[0][0] == '-') {
    report(("unknown option '" + rest[0] + "' (perigee -h lists the options)").c_str());
    code = 1;
    return false;
  }
  options.steps = read_steps(app, text, module);
  if (options.sandbox && (options.interactive || !options.steps.empty() || options.script >= argc)) {
    report("--sandbox takes a script, and no other options");
    code = 1;
    return false;
  }
  return true;
}

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
  if (!from_input) add_script_folder(L, argv[script]);
  const int args = std::max(0, argc - script - 1);
  luaL_checkstack(L, args + 8, "too many arguments");
  for (int i = script + 1; i < argc; ++i) lua_pushstring(L, argv[i]);
  return run_file(L, from_input ? nullptr : argv[script], args);
}

bool run_steps(lua_State* L, const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (!(step.is_module ? run_module(L, step.text) : run_text(L, step.text, "=(command line)"))) return false;
  return true;
}

bool has_text(const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (!step.is_module) return true;
  return false;
}

bool run_all(lua_State* L, int argc, char** argv, const Options& options) {
  const bool terminal = isatty(STDIN_FILENO);
  const bool has_script = options.script < argc;
  const bool idle = !has_script && !has_text(options.steps) && !options.version;
  const bool prompt = options.interactive || (idle && terminal);
  if (options.version) std::printf("perigee %s (%s, %s)\n", PERIGEE_VERSION, LUAJIT_VERSION, cpu_instruction_set());
  set_arguments(L, argc, argv, options.script);
  const bool runs_script = has_script || (idle && !prompt);
  const bool presets = prompt || has_text(options.steps) || (runs_script && reads_input(argc, argv, options.script));
  if (presets && !set_globals(L, prompt)) return false;
  if (!run_steps(L, options.steps)) return false;
  if (runs_script) {
    if (!run_script(L, argc, argv, options.script) && !(prompt && !interrupted())) return false;
    lua_settop(L, 0);
  }
  if (prompt) run_prompt(L);
  return true;
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

int run_program(int argc, char** argv) {
  Options options;
  int code = 0;
  if (!read_options(argc, argv, options, code)) return code;
  if (options.sandbox) return run_sandboxed(argc, argv, options.script);
  lua_State* L = luaL_newstate();
  if (!L || lua_cpcall(
                L, [](lua_State* s) { return vm::open_libraries(s), 0; }, nullptr)) {
    report("out of memory");
    return 1;
  }
  install_interrupts(L);
  const bool ok = run_all(L, argc, argv, options);
  code = ok ? 0 : interrupted() ? kInterruptedExit : 1;
  clear_interrupt();
  remove_interrupts();
  lua_close(L);
  return code;
}

}  // namespace
}  // namespace pg::repl

int main(int argc, char** argv) { return pg::repl::run_program(argc, argv); }
