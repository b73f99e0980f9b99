// A chunk is compiled as the body of a function inside another one that declares the session's locals, so that it has
// them as upvalues. These are then joined to the variables themselves. Behind the chunk, calls hand over a function for
// each local that the chunk has declared; its upvalue is the variable.
#include "repl/session.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <string_view>

#include "vm/box.h"
#include "vm/traceback.h"

namespace pg::repl {
namespace {

const vm::RegistryKey kLocals;   // the table: name → a function whose only upvalue is the variable
const vm::RegistryKey kFailed;   // the table: names of the locals of a failed chunk, and behind all names the values
const vm::RegistryKey kResults;  // the table: the results of the session by number, and their count at 0
const vm::RegistryKey kLarge;    // the same for large tensors, whose memory it does not keep
constexpr Bytes kLargeBytes{1 << 20};
constexpr const char* kKeep = "__keep_locals";

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The names and keywords of a chunk, and single characters for all other tokens.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // Returns an empty token at the end.
  std::string_view next() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      if (text_.substr(at_, 2) != "--") break;
      at_ += 2;
      if (!skip_long()) at_ = std::min(text_.find('\n', at_), text_.size());
    }
    start_ = at_;
    if (at_ >= text_.size()) return {};
    const char c = text_[at_];
    if (starts_name(c)) return take(is_name);
    if (std::isdigit(static_cast<unsigned char>(c))) return take([](char d) { return is_name(d) || d == '.'; });
    if (c == '"' || c == '\'')
      skip_string(c);
    else if (!(c == '[' && skip_long()))
      ++at_;
    return text_.substr(start_, 1);
  }
  size_t start() const { return start_; }  // of the last token

 private:
  template <class F>
  std::string_view take(F belongs) {
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return text_.substr(start_, at_ - start_);
  }
  void skip_string(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] == '\\') ++at_;
    at_ = std::min(at_ + 1, text_.size());
  }
  // Skips [[ … ]] or [==[ … ]==], if it is there.
  bool skip_long() {
    size_t end = at_ + 1;
    if (at_ >= text_.size() || text_[at_] != '[') return false;
    while (end < text_.size() && text_[end] == '=') ++end;
    if (end >= text_.size() || text_[end] != '[') return false;
    const std::string close = "]" + std::string(end - at_ - 1, '=') + "]";
    const size_t found = text_.find(close, end);
    at_ = found == text_.npos ? text_.size() : found + close.size();
    return true;
  }

  std::string_view text_;
  size_t at_ = 0, start_ = 0;
};

struct Outline {
  std::set<std::string> names;        // all that occur
  std::vector<std::string> declared;  // by `local` at the top level
  size_t end = 0;                     // where its last statement begins if that is a return, else where it ends
};

Outline outline_of(const std::string& text) {
  Outline out;
  out.end = text.size();
  Tokens tokens(text);
  int depth = 0;
  for (std::string_view t = tokens.next(); !t.empty();) {
    if (t == "function" || t == "do" || t == "if" || t == "repeat") ++depth;
    if (t == "end" || t == "until") --depth;
    if (t == "return" && depth == 0) out.end = tokens.start();
    if (starts_name(t[0])) out.names.insert(std::string(t));
    const bool declares = t == "local" && depth == 0;
    t = tokens.next();
    if (!declares) continue;
    if (t == "function") {
      ++depth;
      t = tokens.next();
    }
    while (!t.empty() && starts_name(t[0])) {
      out.declared.emplace_back(t);
      t = tokens.next();
      if (t != "," || depth > 0) break;
      t = tokens.next();
    }
  }
  return out;
}

bool ends_expression(std::string_view t) {
  static const std::set<std::string_view> others{"and",    "do",     "else", "elseif", "for",  "function",
                                                 "goto",   "if",     "in",   "local",  "not",  "or",
                                                 "repeat", "return", "then", "until",  "while"};
  if (t.size() == 1 && !is_name(t[0])) return std::string_view(")]}\"';").find(t[0]) != t.npos;
  return !others.count(t);
}

bool starts_expression(std::string_view t) {
  return t.size() > 1 || is_name(t[0]) || std::string_view("({[\"'-#").find(t[0]) != t.npos;
}

// Pushes the n-th result for the name _n. Returns false and pushes nothing if there is none, or a global of that name.
bool push_result(lua_State* L, const std::string& name) {
  if (name.size() < 2 || name[0] != '_' || name.size() > 9) return false;
  if (!std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c); })) return false;
  lua_pushstring(L, name.c_str());
  lua_rawget(L, LUA_GLOBALSINDEX);
  if (!lua_isnil(L, -1)) return lua_pop(L, 1), false;
  lua_pop(L, 1);
  for (const vm::RegistryKey* key : {&kResults, &kLarge}) {
    key->push_or_make(L, key == &kLarge ? "v" : "");
    lua_rawgeti(L, -1, std::stoi(name.substr(1)));
    lua_remove(L, -2);
    if (!lua_isnil(L, -1)) return true;
    lua_pop(L, 1);
  }
  return false;
}

void push_locals(lua_State* L) { kLocals.push_or_make(L, ""); }

// keep(name, function): the function's only upvalue is the variable.
int keep(lua_State* L) {
  push_locals(L);
  lua_insert(L, 1);
  lua_rawset(L, 1);
  return 0;
}

// The chunk inside a function that has the visible locals as upvalues. With `keeps` it also hands over the locals that
// it declares.
std::string wrapped(const std::string& text, const Outline& outline, const std::vector<std::string>& visible,
                    bool keeps) {
  std::string out = std::string("local ") + kKeep;
  for (const std::string& name : visible) out += "," + name;
  out += " return function(...) " + text.substr(0, outline.end);
  if (outline.end == text.size()) out += "\n";  // it may end with a comment; a return keeps its line number
  for (const std::string& name : keeps ? outline.declared : std::vector<std::string>())
    out += std::string(kKeep) + "('" + name + "',function() return " + name + " end) ";
  return out + text.substr(outline.end) + "\nend";
}

// Gives the function on top its variables. `locals`: the stack index of their table.
void join(lua_State* L, int locals) {
  const int function = lua_gettop(L);
  for (int i = 1; const char* name = lua_getupvalue(L, function, i); ++i) {
    lua_pop(L, 1);
    if (!std::strcmp(name, kKeep)) {
      lua_pushcfunction(L, keep);
      lua_setupvalue(L, function, i);
      continue;
    }
    lua_getfield(L, locals, name);
    if (lua_isfunction(L, -1)) {
      lua_upvaluejoin(L, function, i, -1, 1);
      lua_pop(L, 1);
    } else if (lua_pop(L, 1); push_result(L, name)) {
      lua_setupvalue(L, function, i);
    }
  }
}

// Pushes a set of names.
void push_set(lua_State* L, const std::vector<std::string>& names) {
  lua_newtable(L);
  for (const std::string& name : names) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, name.c_str());
  }
}

}  // namespace

std::vector<size_t> statement_starts(const std::string& text) {
  std::vector<size_t> starts;
  Tokens tokens(text);
  int depth = 0;
  std::string_view before = ";";
  for (std::string_view t = tokens.next(); !t.empty(); before = t, t = tokens.next()) {
    if (depth == 0 && ends_expression(before) && starts_expression(t)) starts.push_back(tokens.start());
    if (t == "function" || t == "do" || t == "if" || t == "repeat" || t == "(" || t == "{") ++depth;
    if (t == "end" || t == "until" || t == ")" || t == "}") --depth;
  }
  return starts;
}

int load_in_session(lua_State* L, const std::string& text, const char* chunk_name) {
  const int status = luaL_loadbuffer(L, text.data(), text.size(), chunk_name);
  if (status) return status;
  const Outline outline = outline_of(text);
  push_locals(L);
  const int locals = lua_gettop(L);
  std::vector<std::string> visible;
  for (const std::string& name : outline.names) {
    lua_getfield(L, locals, name.c_str());
    const bool is_local = lua_isfunction(L, -1);
    lua_pop(L, 1);
    const bool is_result = !is_local && push_result(L, name);
    if (is_result) lua_pop(L, 1);
    if (is_local || is_result) visible.push_back(name);
  }
  if (!visible.empty() || !outline.declared.empty()) {
    bool ready = false;
    for (const bool keeps : {true, false}) {  // no call can follow a label at the end
      const std::string whole = wrapped(text, outline, visible, keeps);
      ready = luaL_loadbuffer(L, whole.data(), whole.size(), chunk_name) == 0;
      if (ready || std::strstr(lua_tostring(L, -1), "upvalues")) break;
      if (keeps) lua_pop(L, 1);
    }
    if (ready) {
      lua_call(L, 0, 1);
      join(L, locals);
      lua_pushvalue(L, -1);
      push_set(L, outline.declared);  // for note_locals_of_failed_chunk
      vm::mark_main_chunk(L);
      lua_replace(L, locals - 1);
    } else if (std::strstr(lua_tostring(L, -1), "upvalues")) {
      lua_settop(L, locals - 2);
      lua_pushfstring(L, "%s: an entry can use at most 60 of the session's locals; put some in a table",
                      chunk_name + 1);
      return LUA_ERRSYNTAX;
    }
  }
  lua_settop(L, locals - 1);
  return 0;
}

// An interrupt's hook would end any Lua code that ran here.
void note_locals_of_failed_chunk(lua_State* L) {
  const int top = lua_gettop(L), declared = top + 1, names = top + 2, values = top + 3;
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "f", &frame);
    if (!vm::push_mark(L)) continue;
    lua_newtable(L);
    lua_newtable(L);
    for (int i = 1, n = 0; const char *name = lua_getlocal(L, &frame, i); ++i) {
      lua_getfield(L, declared, name);
      if (lua_toboolean(L, -1)) {
        lua_pushstring(L, name);
        lua_rawseti(L, names, ++n);
        lua_pop(L, 1);
        lua_rawseti(L, values, n);
      }
      lua_settop(L, values);
    }
    lua_setfield(L, names, "values");
    kFailed.set(L);
    break;
  }
  lua_settop(L, top);
}

int adopt_noted_locals(lua_State* L) {
  kFailed.push(L);
  if (lua_isnil(L, -1)) return 0;
  const int names = lua_gettop(L), locals = names + 1, values = names + 2;
  push_locals(L);
  lua_getfield(L, names, "values");
  for (int i = 1; i <= int(lua_objlen(L, names)); ++i) {
    lua_rawgeti(L, names, i);
    luaL_loadstring(L, "local v = ... return function() return v end");
    lua_rawgeti(L, values, i);
    lua_call(L, 1, 1);
    lua_rawset(L, locals);
  }
  lua_pushnil(L);
  kFailed.set(L);
  return 0;
}

std::string with_session_names(lua_State* L, const std::string& message) {
  constexpr std::string_view kUpvalue = "upvalue '";
  const size_t at = message.find(kUpvalue), from = at + kUpvalue.size(), end = message.find('\'', from);
  if (at == message.npos || end == message.npos) return message;
  if (!push_session_local(L, message.substr(from, end - from))) return message;
  lua_pop(L, 1);
  return message.substr(0, at) + "local '" + message.substr(from);
}

bool push_session_local(lua_State* L, const std::string& name) {
  push_locals(L);
  lua_getfield(L, -1, name.c_str());
  lua_remove(L, -2);
  if (lua_isfunction(L, -1) && lua_getupvalue(L, -1, 1)) {
    lua_remove(L, -2);
    return true;
  }
  lua_pop(L, 1);
  return push_result(L, name);
}

int keep_result(lua_State* L) {
  const int value = lua_gettop(L);
  vm::Box* box = vm::to_box(L, vm::find_state(L), value);
  const bool large = box && box->get().defined() && kLargeBytes < bytes_of(box->get().type());
  kResults.push_or_make(L, "");
  lua_rawgeti(L, -1, 0);
  const int n = int(lua_tointeger(L, -1)) + 1;
  lua_pop(L, 1);
  lua_pushinteger(L, n);
  lua_rawseti(L, -2, 0);
  if (large) kLarge.push_or_make(L, "v");
  lua_pushvalue(L, value);
  lua_rawseti(L, -2, n);
  lua_settop(L, value);
  lua_pushliteral(L, "_");
  lua_insert(L, value);
  lua_rawset(L, LUA_GLOBALSINDEX);
  return n;
}

void forget_session(lua_State* L) {
  for (const vm::RegistryKey* key : {&kLocals, &kResults, &kLarge}) {
    lua_pushnil(L);
    key->set(L);
  }
}

std::vector<std::string> session_locals(lua_State* L) {
  std::vector<std::string> out;
  push_locals(L);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) out.emplace_back(lua_tostring(L, -2));
  lua_pop(L, 1);
  return out;
}

}  // namespace pg::repl
