#include "repl/script.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "repl/excerpt.h"
#include "repl/hint.h"
#include "repl/interrupt.h"
#include "repl/session.h"
#include "tensor/terminal.h"
#include "vm/traceback.h"

namespace pg::repl {
namespace {

constexpr const char *kRed = "\033[1;31m", *kPlain = "\033[0m";
constexpr int kInterruptedFrames = 12;  // the most frames that the report of an interrupt shows

std::string entry;  // what the prompt runs

bool is_script_frame(const lua_Debug& frame) { return frame.currentline > 0 && !vm::is_library_source(frame.source); }

// Returns the lines of the traceback of the error at index 1. Lines that were typed at the prompt are left out there.
std::string traceback_text(lua_State* L, Style style) {
  const vm::Traceback found = vm::traceback_of(L, 1);
  std::string text;
  for (size_t i = 0; i < found.frames.size(); ++i) {
    const vm::ScriptFrame& frame = found.frames[i];
    if (found.gap && i == found.gap) text += "\n\t...";
    if (style == Style::kScript || !frame.prompt_line) text += "\n\t" + frame.place + ": " + frame.what;
  }
  return text.empty() ? text : "\nstack traceback:" + text;
}

// Message handler: the text of the error, then a traceback without frames of the library and of C.
int traceback(lua_State* L) {
  const Style style = lua_toboolean(L, lua_upvalueindex(1)) ? Style::kPrompt : Style::kScript;
  lua_settop(L, 1);
  vm::push_error_text(L, 1);
  if (style == Style::kPrompt && lua_checkstack(L, LUA_MINSTACK)) {
    note_locals_of_failed_chunk(L);
    std::string named = with_session_names(L, std::string(lua_tostring(L, 2), lua_objlen(L, 2)));
    lua_pushlstring(L, named.data(), named.size());
    lua_replace(L, 2);
  }
  {
    std::string more = method_hint(L, lua_tostring(L, 2));
    if (style == Style::kPrompt) more += excerpt(lua_tostring(L, 2), entry);
    more += traceback_text(L, style);
    lua_pushlstring(L, more.data(), more.size());
  }
  lua_concat(L, 2);
  return 1;
}

bool report_error(lua_State* L, Style style) {
  const char* text = lua_tostring(L, -1);
  report(text ? text : "(error object is not a string)", style);
  lua_settop(L, 0);
  return false;
}

// Reports the message of a chunk that does not compile.
bool report_syntax(lua_State* L) {
  if (const char* text = lua_tostring(L, -1)) {
    const std::string hint = syntax_hint(L, text);
    lua_pushlstring(L, hint.data(), hint.size());
    lua_concat(L, 2);
  }
  return report_error(L, Style::kScript);
}

}  // namespace

void set_entry(const std::string& text) { entry = text; }

void report(const char* text, Style style) {
  if (style == Style::kPrompt && interrupted() && isatty(STDIN_FILENO)) std::fputc('\n', stdout);  // behind the ^C
  std::fflush(stdout);
  const int first = int(std::strcspn(text, "\n"));
  if (style == Style::kScript)
    std::fprintf(stderr, "perigee: %s\n", text);
  else if (has_colours(STDERR_FILENO))
    std::fprintf(stderr, "%s%.*s%s%s\n", kRed, first, text, kPlain, text + first);
  else
    std::fprintf(stderr, "%s\n", text);
  std::fflush(stderr);
}

void report_entry_syntax(lua_State* L) {
  const std::string message = lua_tostring(L, -1);
  report((message + syntax_hint(L, message.c_str()) + excerpt(message, entry)).c_str(), Style::kPrompt);
}

void write_interrupted(lua_State* L, const char* position) {
  char line[256];
  const auto write_line = [&](int size) {
    if (write(STDERR_FILENO, line, std::min(size_t(size), sizeof line - 1)) < 0) return;
  };
  bool first = true;
  const auto add = [&](const char* file, int number, const char* note) {
    char where[160];
    if (number > 0)
      std::snprintf(where, sizeof where, "%s:%d", file, number);
    else
      std::snprintf(where, sizeof where, "%s", file);
    if (first) write_line(std::snprintf(line, sizeof line, "perigee: %s: interrupted\nstack traceback:\n", where));
    first = false;
    write_line(std::snprintf(line, sizeof line, "\t%s: %s\n", where, note));
  };
  if (position) add(position, 0, "was interrupted, and what handles its error does not end");
  lua_Debug frame;
  for (int level = 0; L && level < kInterruptedFrames && lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    const char* note = *frame.what == 'm' ? "in main chunk" : "in function";
    if (is_script_frame(frame)) add(frame.short_src, frame.currentline, note);
  }
  if (first)
    write_line(std::snprintf(line, sizeof line, "perigee: interrupted (in a call that could not be stopped)\n"));
}

bool run_function(lua_State* L, int args, Style style) {
  const int base = lua_gettop(L) - args;
  lua_pushboolean(L, style == Style::kPrompt);
  lua_pushcclosure(L, traceback, 1);
  lua_insert(L, base);
  const int status = lua_pcall(L, args, LUA_MULTRET, base);
  lua_remove(L, base);
  return status == 0 || report_error(L, style);
}

bool run_text(lua_State* L, const std::string& text, const char* chunk_name) {
  if (luaL_loadbuffer(L, text.data(), text.size(), chunk_name)) return report_syntax(L);
  if (!run_function(L, 0)) return false;
  lua_settop(L, 0);
  return true;
}

bool run_file(lua_State* L, const char* path, int args) {
  const int base = lua_gettop(L) - args + 1;
  if (luaL_loadfile(L, path)) return report_syntax(L);
  lua_insert(L, base);
  return run_function(L, args);
}

bool run_module(lua_State* L, const std::string& name) {
  lua_getglobal(L, "require");
  lua_pushlstring(L, name.data(), name.size());
  if (!run_function(L, 1)) return false;
  lua_settop(L, 0);
  return true;
}

void add_script_folder(lua_State* L, const std::string& script) {
  const size_t slash = script.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : script.substr(0, slash);
  if (folder.find_first_of(";?") != std::string::npos) return;  // package.path cannot represent such a folder
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  const char* path = lua_tostring(L, -1);
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", folder.c_str(), folder.c_str(), path ? path : "");
  lua_setfield(L, -3, "path");
  lua_pop(L, 2);
}

}  // namespace pg::repl
