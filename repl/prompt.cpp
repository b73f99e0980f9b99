#include "repl/prompt.h"

#include <luajit.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "repl/complete.h"
#include "repl/hint.h"
#include "repl/interrupt.h"
#include "repl/lines.h"
#include "repl/script.h"
#include "repl/session.h"
#include "repl/show.h"
#include "vm/bindings.h"

namespace pg::repl {
namespace {

constexpr const char* kChunk = "=stdin";
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

// One entered piece of code.
struct Piece {
  std::string text;
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

Load load(lua_State* L, const std::string& text) {
  if (load_in_session(L, text, kChunk) == 0) return Load::kReady;
  return ends_early(L) ? Load::kIncomplete : Load::kWrong;
}

// Pushes the compiled function of the text, or the message of its syntax error. It tries an expression first. The
// parser's message decides whether more lines are needed.
Load load_piece(lua_State* L, const Piece& piece) {
  const std::string text = trimmed(piece.text);
  if (text[0] == '=') return load(L, "return " + text.substr(1));
  if (load(L, "return " + piece.text) == Load::kReady) return Load::kReady;
  lua_pop(L, 1);
  return load(L, piece.text);
}

struct Loading {
  const Piece& piece;
  Load result = Load::kWrong;
};

// load_piece in a protected call, because it runs Lua code, which an interrupt may end.
Load load_protected(lua_State* L, const Piece& piece) {
  Loading loading{piece};
  lua_pushcfunction(L, [](lua_State* l) {
    auto* todo = static_cast<Loading*>(lua_touserdata(l, 1));
    lua_settop(l, 0);
    todo->result = load_piece(l, todo->piece);
    return 1;
  });
  lua_pushlightuserdata(L, &loading);
  return lua_pcall(L, 1, 1, 0) ? Load::kWrong : loading.result;
}

// Returns help("name") for ?name.
std::string help_call(const std::string& text) {
  std::string name = trimmed(text.substr(1));
  return name.empty() ? "help()" : "help([==[" + name + "]==])";
}

// Prints all values on the stack and sets the global _ to the first.
int print_results(lua_State* L) {
  const int n = lua_gettop(L);
  if (lua_isnil(L, 1) && n == 1) return 0;
  lua_pushvalue(L, 1);
  lua_setglobal(L, "_");
  luaL_Buffer line;
  luaL_buffinit(L, &line);
  for (int i = 1; i <= n; ++i) {
    std::string text = show(L, i);
    text.insert(0, i > 1 ? "\t" : "");
    luaL_addlstring(&line, text.data(), text.size());
  }
  luaL_pushresult(&line);
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  std::fwrite(text, 1, size, stdout);
  std::fputc('\n', stdout);
  return 0;
}

class Prompt {
 public:
  explicit Prompt(lua_State* L)
      : L_(L), reader_(make_line_reader([L](const std::string& t) { return complete(L, t); })) {}

  void run() {
    for (Piece piece; read_piece(piece) && !leaves(piece);) {
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
    lua_settop(L_, 0);
    if (push_session_local(L_, word)) return false;
    lua_pushstring(L_, word.c_str());
    lua_rawget(L_, LUA_GLOBALSINDEX);
    return lua_isnil(L_, -1);
  }

  bool add_line(Piece& piece, const std::string& line) {
    if (piece.text.empty() && trimmed(line)[0] == '?')
      piece.text = help_call(trimmed(line));
    else
      piece.text += (piece.text.empty() ? "" : "\n") + line;
    piece.silent = trimmed(piece.text).back() == ';';
    lua_settop(L_, 0);
    return load_protected(L_, piece) != Load::kIncomplete;
  }

  void run_piece(const Piece& piece) {
    if (!lua_isfunction(L_, -1)) {
      const std::string message = lua_tostring(L_, -1);
      report((message + syntax_hint(L_, message.c_str())).c_str(), Style::kPrompt);
      lua_settop(L_, 0);
      return;
    }
    if (!run_function(L_, 0, Style::kPrompt)) {
      clear_interrupt();
      lua_pushcfunction(L_, adopt_noted_locals);
      run_function(L_, 0, Style::kPrompt);
      return;
    }
    if (piece.silent || lua_gettop(L_) == 0) return lua_settop(L_, 0);
    lua_pushcfunction(L_, print_results);
    lua_insert(L_, 1);
    run_function(L_, lua_gettop(L_) - 1, Style::kPrompt);
    lua_settop(L_, 0);
  }

  lua_State* L_;
  std::unique_ptr<LineReader> reader_;
};

}  // namespace

bool set_globals(lua_State* L) {
  lua_pushcfunction(L, open_globals);
  return run_function(L, 0);
}

void run_prompt(lua_State* L) {
  set_interrupt_mode(InterruptMode::kPrompt);
  std::printf("perigee %s (%s). help() says more, exit or Ctrl-D leaves.\n", PERIGEE_VERSION, LUAJIT_VERSION);
  Prompt(L).run();
}

}  // namespace pg::repl
