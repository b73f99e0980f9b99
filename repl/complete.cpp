#include "repl/complete.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <string_view>

#include "repl/session.h"
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

struct Request {
  const std::string& text;
  Completions& found;
};

const char* const kKeywords[] = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                 "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                 "repeat",   "return", "then", "true", "until",  "while"};

void search(lua_State* L, const std::string& text, Completions& found) {
  const Chain chain = read_chain(text);
  found.word = chain.word;
  if (!chain.valid) return;
  const std::string word = text.substr(chain.word);
  Walk walk(L, word, chain.separator);
  if (walk.find(chain.keys)) walk.collect();
  if (chain.keys.empty()) {
    for (const std::string& name : session_locals(L)) walk.add(name.c_str());
    for (const char* keyword : kKeywords)
      if (!word.empty()) walk.add(keyword);
  }
  found.names.assign(walk.names.begin(), walk.names.end());
}

int search_protected(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  search(L, request->text, request->found);
  return 0;
}

}  // namespace

Completions complete(lua_State* L, const std::string& text) {
  Completions found;
  Request request{text, found};
  const int top = lua_gettop(L);
  if (lua_cpcall(L, search_protected, &request)) found.names.clear();
  lua_settop(L, top);
  return found;
}

}  // namespace pg::repl
