#include "repl/prompt.h"

#include <luajit.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "repl/complete.h"
#include "repl/interrupt.h"
#include "repl/lines.h"
#include "repl/script.h"
#include "repl/session.h"
#include "repl/show.h"
#include "vm/bindings.h"
#include "vm/state.h"

namespace pg::repl {
namespace {

constexpr const char* kChunk = "=stdin";
const vm::RegistryKey kHost;         // what stdlib/tools/prompt.lua needs of this program
constexpr double kWorthTelling = 1;  // seconds that a line took

// help(x) is pg.help(x). It loads pg.help at the first call.
int help(lua_State* L) {
  lua_getfield(L, lua_upvalueindex(1), "help");
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int open_globals(lua_State* L) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "perigee");
  lua_call(L, 1, 1);
  lua_pushvalue(L, -1);
  lua_setglobal(L, "pg");
  lua_pushcclosure(L, help, 1);
  lua_setglobal(L, "help");
  return 0;
}

// One entered piece of code, or a command.
struct Piece {
  std::string text;
  bool command = false;
  bool silent = false;  // an expression that ends in ';' prints nothing
};

enum class Load { kReady, kIncomplete, kWrong };

bool ends_early(lua_State* L) {
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  return text && size >= 7 && std::strcmp(text + size - 7, "'<eof>'") == 0;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

Load load(lua_State* L, const std::string& text, const char* chunk) {
  if (load_in_session(L, text, chunk) == 0) return Load::kReady;
  return ends_early(L) ? Load::kIncomplete : Load::kWrong;
}

// Loads a text that ends with an expression as if `return` were before it. Pushes nothing unless this succeeds.
bool load_with_last_value(lua_State* L, const std::string& text, const char* chunk) {
  const std::vector<size_t> starts = statement_starts(text);
  // The last ones: a call such as `f "x"` looks like two.
  for (size_t k = starts.size() - std::min<size_t>(starts.size(), 4); k < starts.size(); ++k) {
    if (load(L, text.substr(0, starts[k]) + "return " + text.substr(starts[k]), chunk) == Load::kReady) return true;
    lua_pop(L, 1);
  }
  return false;
}

// Pushes the compiled function of the text, or the message of its syntax error. It tries an expression first, and one
// at the end of statements last. The parser's message decides whether more lines are needed.
Load load_code(lua_State* L, const std::string& text, const char* chunk = kChunk) {
  if (const std::string code = trimmed(text); code[0] == '=') return load(L, "return " + code.substr(1), chunk);
  if (load(L, "return " + text, chunk) != Load::kReady) {
    lua_pop(L, 1);
    const Load result = load(L, text, chunk);
    if (result == Load::kReady || !load_with_last_value(L, text, chunk)) return result;
    lua_remove(L, -2);
    return Load::kReady;
  }
  // A tail call would take the entry's frame, and with it the position of an error.
  const char* const end = text.find("--") == text.npos ? ")" : "\n)";  // behind a comment
  if (load(L, "return (function(...) return ... end)(" + text + end, chunk) != Load::kReady)
    lua_pop(L, 1);
  else
    lua_remove(L, -2);
  return Load::kReady;
}

// `:name …`, `?name`, `??word`, `!command`, or `name?`.
bool is_command(const std::string& line) {
  const std::string text = trimmed(line);
  if (text[0] == '?' || text[0] == '!') return true;
  if (text[0] == ':') return text.size() > 1 && std::isalpha(static_cast<unsigned char>(text[1]));
  if (text.size() < 2 || text.back() != '?') return false;
  return std::all_of(text.begin(), text.end() - 1,
                     [](unsigned char c) { return std::isalnum(c) || std::strchr("_.:[]'\"", c); });
}

// Runs the command that is upvalue 1.
int run_command(lua_State* L) {
  vm::push_library_module(L, "tools.prompt");
  const int module = lua_gettop(L);
  lua_getfield(L, module, "run");
  kHost.push(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_call(L, 2, LUA_MULTRET);
  return lua_gettop(L) - module;
}

// Runs files again that the command :load has run and that have changed since.
int reload_files(lua_State* L) {
  vm::push_library_module(L, "tools.prompt");
  lua_getfield(L, -1, "reload");
  kHost.push(L);
  lua_call(L, 1, 0);
  return 0;
}

struct Loading {
  const Piece& piece;
  Load result = Load::kWrong;
};

int load_body(lua_State* L) {
  auto* loading = static_cast<Loading*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  if (!loading->piece.command) return loading->result = load_code(L, loading->piece.text), 1;
  lua_pushlstring(L, loading->piece.text.data(), loading->piece.text.size());
  lua_pushcclosure(L, run_command, 1);
  loading->result = Load::kReady;
  return 1;
}

// Pushes the function of a piece, or the message of its syntax error. The call is protected, because it runs Lua code,
// which an interrupt may end.
Load load_piece(lua_State* L, const Piece& piece) {
  Loading loading{piece};
  lua_pushcfunction(L, load_body);
  lua_pushlightuserdata(L, &loading);
  return lua_pcall(L, 1, 1, 0) ? Load::kWrong : loading.result;
}

// load(text[, chunk name]) → the function of code that sees the session's locals, or nil and the message
int load_for_command(lua_State* L) {
  const std::string text = luaL_checkstring(L, 1), chunk = luaL_optstring(L, 2, kChunk);
  if (load_code(L, text, chunk.c_str()) == Load::kReady) return 1;
  lua_pushnil(L);
  lua_insert(L, -2);
  return 2;
}

int forget_for_command(lua_State* L) {
  forget_session(L);
  return 0;
}

int make_host(lua_State* L) {
  lua_createtable(L, 0, 4);
  lua_newtable(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 2);
  }
  lua_settop(L, 2);
  lua_setfield(L, 1, "globals");
  lua_pushcfunction(L, load_for_command);
  lua_setfield(L, -2, "load");
  lua_pushcfunction(L, forget_for_command);
  lua_setfield(L, -2, "forget");
  lua_newtable(L);
  lua_setfield(L, -2, "entries");
  kHost.set(L);
  return 0;
}

// add_entry(text, number of its result or nil)
int add_entry(lua_State* L) {
  kHost.push(L);
  lua_getfield(L, -1, "entries");
  lua_createtable(L, 0, 2);
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "text");
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "result");
  lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
  return 0;
}

// Prints all values on the stack and keeps the first. Returns the number of the result.
int print_results(lua_State* L) {
  const int n = lua_gettop(L);
  if (lua_isnil(L, 1) && n == 1) return 0;
  lua_pushvalue(L, 1);
  const int number = keep_result(L);
  std::string line;
  for (int i = 1; i <= n; ++i) add_aligned(line, (i > 1 ? "\t" : ""), show(L, i));
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  lua_pushinteger(L, number);
  return 1;
}

class Prompt {
 public:
  explicit Prompt(lua_State* L)
      : L_(L),
        reader_(make_line_reader({[L](const std::string& t) { return complete(L, t); },
                                  [L](const std::string& t) { return signature(L, t); }})) {
    call(make_host);
  }

  void run() {
    for (Piece piece; read_piece(piece) && !leaves(piece);) {
      if (has_commands_ && !piece.command) reload(piece);
      const auto start = std::chrono::steady_clock::now();
      run_piece(piece);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (took.count() >= kWorthTelling) std::printf("(%.1f s)\n", took.count());
      std::fflush(stdout);
    }
  }

 private:
  // Reads lines until they form a complete piece, whose function is then on the stack. Returns false at the end of the
  // input.
  bool read_piece(Piece& piece) {
    for (;;) {
      piece = {};
      bool again = false;
      while (!again) {
        clear_interrupt();
        std::string line;
        const Read got = reader_->read(piece.text.empty() ? "> " : ">> ", line);
        clear_interrupt();
        if (got == Read::kEnd) return false;
        if (got == Read::kInterrupted || (piece.text.empty() && trimmed(line).empty())) {
          again = true;
          continue;
        }
        if (!add_line(piece, line)) continue;
        reader_->remember(piece.text);
        return true;
      }
    }
  }

  // Whether the piece is `exit` or `quit`, with or without (), and the session has no variable of that name.
  bool leaves(const Piece& piece) {
    std::string word = trimmed(piece.text);
    if (word.ends_with("()")) word.resize(word.size() - 2);
    if (word != "exit" && word != "quit") return false;
    const int top = lua_gettop(L_);
    bool known = push_session_local(L_, word);
    lua_pushstring(L_, word.c_str());
    lua_rawget(L_, LUA_GLOBALSINDEX);
    known |= !lua_isnil(L_, -1);
    lua_settop(L_, top);
    return !known;
  }

  bool add_line(Piece& piece, const std::string& line) {
    piece.command = piece.text.empty() && is_command(line);
    piece.text += (piece.text.empty() ? "" : "\n") + line;
    piece.silent = !piece.command && trimmed(piece.text).back() == ';';
    lua_settop(L_, 0);
    return load_piece(L_, piece) != Load::kIncomplete;
  }

  void run_piece(const Piece& piece) {
    set_entry(piece.command ? "" : piece.text);
    if (!lua_isfunction(L_, -1)) {
      report_entry_syntax(L_);
      lua_settop(L_, 0);
      return;
    }
    has_commands_ |= piece.command;
    if (!run_function(L_, 0, Style::kPrompt)) {
      clear_interrupt();
      const lua_Hook hook = lua_gethook(L_);  // of a debugger; it has seen the entry
      const int mask = lua_gethookmask(L_), count = lua_gethookcount(L_);
      vm::set_hook(L_, vm::find_state(L_), nullptr, 0, 0);
      call(adopt_noted_locals);
      vm::set_hook(L_, vm::find_state(L_), hook, mask, count);
      return;
    }
    if (lua_gettop(L_) > 0 && !piece.silent) {
      lua_pushcfunction(L_, print_results);
      lua_insert(L_, 1);
      if (!run_function(L_, lua_gettop(L_) - 1, Style::kPrompt)) return;
    } else {
      lua_settop(L_, 0);
    }
    if (piece.command) return lua_settop(L_, 0);
    lua_settop(L_, 1);
    lua_pushlstring(L_, piece.text.data(), piece.text.size());
    lua_insert(L_, 1);
    lua_pushcfunction(L_, add_entry);
    lua_insert(L_, 1);
    run_function(L_, 2, Style::kPrompt);
  }

  // The function of the piece is compiled again, since files may have made new locals.
  void reload(const Piece& piece) {
    lua_settop(L_, 0);
    call(reload_files);
    load_piece(L_, piece);
  }

  void call(lua_CFunction f) {
    lua_pushcfunction(L_, f);
    run_function(L_, 0, Style::kPrompt);
    lua_settop(L_, 0);
  }

  lua_State* L_;
  std::unique_ptr<LineReader> reader_;
  bool has_commands_ = false;  // a command was run, and so its module is loaded
};

}  // namespace

bool set_globals(lua_State* L, bool prompt) {
  if (prompt) lua_register(L, "print", print_aligned);
  lua_pushcfunction(L, open_globals);
  return run_function(L, 0);
}

void run_prompt(lua_State* L) {
  set_interrupt_mode(InterruptMode::kPrompt);
  std::printf("perigee %s (%s). help() says more, exit or Ctrl-D leaves.\n", PERIGEE_VERSION, LUAJIT_VERSION);
  Prompt(L).run();
}

}  // namespace pg::repl
