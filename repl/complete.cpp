#include "repl/complete.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "repl/session.h"
#include "vm/bindings.h"
#include "vm/box.h"

namespace pg::repl {
namespace {

constexpr int kSteps = 50;  // the most metatables that are followed

struct Key {
  std::string name;
  int index = 0;  // for a key such as [2]
  bool is_index = false;
};

struct Chain {
  std::vector<Key> keys;  // outermost first; empty for a global
  char separator = 0;     // '.' or ':' before the word
  size_t word = 0;
  bool valid = true;
};

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Reads `[2]` or `["name"]` that ends before `end`; moves `end` to its start.
bool read_bracket(const std::string& text, size_t& end, Key& key) {
  const size_t open = text.rfind('[', end - 1);
  if (open == std::string::npos) return false;
  std::string inside = text.substr(open + 1, end - open - 2);
  if (inside.size() >= 2 && (inside[0] == '"' || inside[0] == '\'') && inside.back() == inside[0]) {
    key.name = inside.substr(1, inside.size() - 2);
  } else {
    if (inside.empty() || inside.size() > 9 || inside.find_first_not_of("0123456789") != std::string::npos)
      return false;
    key.is_index = true;
    key.index = std::stoi(inside);
  }
  end = open;
  return true;
}

Chain read_chain(const std::string& text) {
  Chain chain;
  size_t at = text.size();
  while (at > 0 && is_name(text[at - 1])) --at;
  chain.word = at;
  const char before = at > 0 ? text[at - 1] : 0;
  const bool concatenation = before == '.' && at > 1 && text[at - 2] == '.';
  if ((before != '.' && before != ':') || concatenation) return chain;
  chain.separator = before;
  --at;
  for (bool more = true; more;) {
    Key key;
    if (at > 0 && text[at - 1] == ']') {
      if (!read_bracket(text, at, key)) return chain.valid = false, chain;
      chain.keys.insert(chain.keys.begin(), key);
      continue;
    }
    size_t start = at;
    while (start > 0 && is_name(text[start - 1])) --start;
    if (start == at) return chain.valid = false, chain;
    key.name = text.substr(start, at - start);
    chain.keys.insert(chain.keys.begin(), key);
    at = start;
    more = at > 0 && (text[at - 1] == '.' || text[at - 1] == ':');
    if (more) --at;
  }
  return chain;
}

// Pushes a raw field of the metatable of the value on top. Returns false and pushes nothing if there is none.
bool push_meta(lua_State* L, const char* field) {
  if (!lua_getmetatable(L, -1)) return false;
  lua_pushstring(L, field);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

// Pushes the table in which absent fields of the value on top are looked up: its __index, or the class where that is
// the library's function (see stdlib/support/class.lua). Returns false if there is none.
bool push_index(lua_State* L) {
  if (!push_meta(L, "__index")) return false;
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  if (!push_meta(L, "_library")) return false;
  lua_pop(L, 1);
  return lua_getmetatable(L, -1);
}

bool is_library(lua_State* L) {
  if (!push_meta(L, "__fields")) return false;
  lua_pop(L, 1);
  return true;
}

class Walk {
 public:
  Walk(lua_State* L, const std::string& word, char separator) : L_(L), word_(word), methods_(separator == ':') {}
  std::set<std::string> names;

  // Pushes the value that the keys name. Returns false if a key is absent.
  bool find(const std::vector<Key>& keys) {
    bool ours = false;
    size_t i = !keys.empty() && !keys[0].is_index && push_session_local(L_, keys[0].name);
    if (i == 0) lua_pushvalue(L_, LUA_GLOBALSINDEX);
    for (; i < keys.size(); ++i) {
      if (!step(keys[i], ours)) return false;
      ours = (ours || is_module()) && lua_istable(L_, -1) && is_library(L_);
    }
    return true;
  }

  // Collects the names of the fields of the value on top.
  void collect() {
    pg::vm::State& state = pg::vm::find_state(L_);
    pg::vm::make_ops(L_);
    if (pg::vm::to_box(L_, state, lua_gettop(L_))) return collect_tensor();
    for (int steps = 0; steps < kSteps; ++steps) {
      if (lua_istable(L_, -1)) add_keys(methods_);
      if (lua_istable(L_, -1)) add_library_fields();
      if (!push_index(L_)) return;
    }
  }

  void add(const char* name) {
    if (std::strncmp(name, word_.c_str(), word_.size()) != 0) return;
    if (name[0] == '_' && word_.empty()) return;
    if (std::isdigit(static_cast<unsigned char>(name[0]))) return;
    for (const char* c = name; *c; ++c)
      if (!is_name(*c)) return;
    names.insert(name);
  }

 private:
  bool is_module() {
    lua_getfield(L_, LUA_REGISTRYINDEX, "_LOADED");
    lua_pushstring(L_, "perigee");
    lua_rawget(L_, -2);
    const bool same = lua_rawequal(L_, -1, -3);
    lua_pop(L_, 2);
    return same;
  }

  // Replaces the value on top by its field. Returns false if it has no such field.
  bool step(const Key& key, bool ours) {
    luaL_checkstack(L_, kSteps + 8, "completion");
    for (int steps = 0; steps < kSteps; ++steps) {
      if (lua_istable(L_, -1)) {
        key.is_index ? lua_pushnumber(L_, key.index) : lua_pushstring(L_, key.name.c_str());
        lua_rawget(L_, -2);
        if (!lua_isnil(L_, -1)) return true;
        lua_pop(L_, 1);
        if (ours && !key.is_index) return lua_getfield(L_, -1, key.name.c_str()), true;  // loads a module
      }
      if (!push_index(L_)) return false;
    }
    return false;
  }

  void add_keys(bool functions_only) {
    for (lua_pushnil(L_); lua_next(L_, -2); lua_pop(L_, 1))
      if (lua_type(L_, -2) == LUA_TSTRING && (!functions_only || lua_isfunction(L_, -1))) add(lua_tostring(L_, -2));
  }

  // Adds the names that a module of the library loads at the first use.
  void add_library_fields() {
    if (methods_ || !push_meta(L_, "__fields")) return;
    for (int i = 1; i <= int(lua_objlen(L_, -1)); ++i) {
      lua_rawgeti(L_, -1, i);
      if (lua_istable(L_, -1)) add_keys(false);
      lua_pop(L_, 1);
    }
    lua_pop(L_, 1);
  }

  // Adds names from the upvalues of the tensors' __index function: methods, then fields.
  void collect_tensor() {
    if (!push_meta(L_, "__index")) return;
    for (int i = methods_ ? 2 : 3; i <= (methods_ ? 2 : 4); ++i) {
      if (!lua_getupvalue(L_, -1, i)) return;
      if (lua_istable(L_, -1)) add_keys(false);
      lua_pop(L_, 1);
    }
  }

  lua_State* L_;
  const std::string& word_;
  bool methods_;
};

// What is open at the end of a line of code.
struct Open {
  size_t string = std::string::npos;  // the quote of a string without its end
  std::vector<size_t> brackets;       // outermost first
};

Open scan(const std::string& text) {
  Open open;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (open.string != std::string::npos) {
      if (c == '\\')
        ++at;
      else if (c == text[open.string])
        open.string = std::string::npos;
    } else if (c == '"' || c == '\'') {
      open.string = at;
    } else if (c == '(' || c == '{' || c == '[') {
      open.brackets.push_back(at);
    } else if ((c == ')' || c == '}' || c == ']') && !open.brackets.empty()) {
      open.brackets.pop_back();
    }
  }
  return open;
}

size_t before_spaces(const std::string& text, size_t at) {
  while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) --at;
  return at;
}

// Returns where the name ends that a bracket calls, or 0. `{` calls a name, or is in the arguments of a call.
size_t callee_end(const std::string& text, const Open& open, size_t level) {
  const size_t end = before_spaces(text, open.brackets[level]);
  if (end > 0 && is_name(text[end - 1])) return end;
  const bool table = text[open.brackets[level]] == '{';
  return table && level > 0 && text[open.brackets[level - 1]] == '(' ? callee_end(text, open, level - 1) : 0;
}

// Pushes the function whose name ends there and the method's name if it is one of a tensor, else nil. Returns false if
// there is no such value.
bool push_callee(lua_State* L, const std::string& text, size_t end) {
  const Chain chain = read_chain(text.substr(0, end));
  const std::string word = text.substr(chain.word, end - chain.word);
  Walk walk(L, word, chain.separator);
  if (!chain.valid || word.empty() || !walk.find(chain.keys)) return false;
  if (chain.separator == ':' && vm::to_box(L, vm::find_state(L), lua_gettop(L))) {
    lua_pushlstring(L, word.data(), word.size());
    return true;
  }
  std::vector<Key> keys = chain.keys;
  keys.push_back({word});
  if (!walk.find(keys)) return false;
  lua_pushnil(L);
  return true;
}

// Calls a function of stdlib/tools/complete.lua with the callee and leaves its result on the stack.
bool ask(lua_State* L, const char* function, const std::string& text, size_t end) {
  luaL_checkstack(L, 20, "completion");
  if (end == 0 || !push_callee(L, text, end)) return false;
  const int method = lua_gettop(L);
  vm::push_library_module(L, "tools.complete");
  lua_getfield(L, -1, function);
  lua_pushvalue(L, method - 1);
  lua_pushvalue(L, method);
  lua_call(L, 2, 1);
  return true;
}

// Adds the strings of the list on top of the stack that begin with the word, with `behind` after each.
void add_list(lua_State* L, const std::string& word, const char* behind, std::set<std::string>& names) {
  for (int i = 1; i <= int(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    if (const std::string name = lua_tostring(L, -1); name.starts_with(word)) names.insert(name + behind);
    lua_pop(L, 1);
  }
}

void add_files(const std::string& path, std::set<std::string>& names) {
  namespace fs = std::filesystem;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1), start = path.substr(folder.size());
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(start) || (start.empty() && name[0] == '.')) continue;
    std::error_code unknown;
    names.insert(folder + name + (it->is_directory(unknown) ? "/" : ""));
  }
}

// Adds the string keys of the table that `[` indexes.
void add_table_keys(lua_State* L, const std::string& text, size_t bracket, const std::string& word,
                    std::set<std::string>& names) {
  Chain chain = read_chain(text.substr(0, bracket) + ".");
  Walk walk(L, word, '.');
  if (!chain.valid || chain.keys.empty() || !walk.find(chain.keys) || !lua_istable(L, -1)) return;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING)
      if (const std::string name = lua_tostring(L, -2); name.starts_with(word)) names.insert(name);
}

struct Request {
  const std::string& text;
  Completions found;
  std::string signature;
};

const char* const kKeywords[] = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                 "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                 "repeat",   "return", "then", "true", "until",  "while"};

void add_names(lua_State* L, const std::string& text, const Chain& chain, std::set<std::string>& names) {
  if (!chain.valid) return;
  const std::string word = text.substr(chain.word);
  Walk walk(L, word, chain.separator);
  if (walk.find(chain.keys)) walk.collect();
  if (chain.keys.empty()) {
    for (const std::string& name : session_locals(L)) walk.add(name.c_str());
    for (const char* keyword : kKeywords)
      if (!word.empty()) walk.add(keyword);
  }
  names.insert(walk.names.begin(), walk.names.end());
}

// Returns where the path begins that a command such as `:load` or the shell gets, or npos.
size_t path_start(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_of(" \t!");
  if (first == text.npos || last == text.npos || last < first) return text.npos;
  if (text[first] == '!') return last + 1;
  for (const char* command : {":load ", ":save ", ":edit "})
    if (text.compare(first, 6, command) == 0) return last + 1;
  return text.npos;
}

size_t search(lua_State* L, const std::string& text, std::set<std::string>& names) {
  const size_t first = text.find_first_not_of(" \t");
  if (first != text.npos && text[first] == ':' && text.find(' ', first) == text.npos) {
    vm::push_library_module(L, "tools.prompt");
    lua_getfield(L, -1, "names");
    lua_call(L, 0, 1);
    return add_list(L, text.substr(first), " ", names), first;
  }
  if (const size_t path = path_start(text); path != text.npos) return add_files(text.substr(path), names), path;
  const Open open = scan(text);
  if (open.string != text.npos) {
    const size_t word = open.string + 1;
    const bool indexes = open.string > 0 && text[open.string - 1] == '[';
    indexes ? add_table_keys(L, text, open.string - 1, text.substr(word), names) : add_files(text.substr(word), names);
    return word;
  }
  const Chain chain = read_chain(text);
  const size_t before = before_spaces(text, chain.word);
  if (!chain.separator && !open.brackets.empty() && text[open.brackets.back()] == '{' && before > 0 &&
      (text[before - 1] == '{' || text[before - 1] == ',') &&
      ask(L, "options", text, callee_end(text, open, open.brackets.size() - 1)))
    add_list(L, text.substr(chain.word), " = ", names);
  if (names.empty()) add_names(L, text, chain, names);
  return chain.word;
}

int search_protected(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  std::set<std::string> names;
  request->found.word = search(L, request->text, names);
  request->found.names.assign(names.begin(), names.end());
  return 0;
}

int sign_protected(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  const Open open = scan(request->text);
  for (size_t level = open.brackets.size(); level-- > 0;) {
    lua_settop(L, 1);
    if (!ask(L, "signature", request->text, callee_end(request->text, open, level)) || !lua_isstring(L, -1)) continue;
    request->signature = lua_tostring(L, -1);
    break;
  }
  return 0;
}

Request run_protected(lua_State* L, const std::string& text, lua_CFunction f) {
  Request request{text, {}, {}};
  const int top = lua_gettop(L);
  if (lua_cpcall(L, f, &request)) request.found.names.clear();
  lua_settop(L, top);
  return request;
}

}  // namespace

Completions complete(lua_State* L, const std::string& text) { return run_protected(L, text, search_protected).found; }

std::string signature(lua_State* L, const std::string& text) {
  return run_protected(L, text, sign_protected).signature;
}

}  // namespace pg::repl
