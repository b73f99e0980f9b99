#include "repl/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "vm/box.h"

namespace pg::repl {
namespace {

constexpr int kDepth = 3;
constexpr int kItems = 60;  // the most items shown of one table

std::string with_tostring(lua_State* L, int i) {
  lua_getglobal(L, "tostring");
  lua_pushvalue(L, i);
  lua_call(L, 1, 1);
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  std::string out(text ? text : "", size);
  lua_pop(L, 1);
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 200)) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 32)
      out += fmt::format("\\{:03}", int(c));
    else
      out += c;
  }
  return out + (text.size() > 200 ? "\"…" : "\"");
}

bool is_identifier(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

class Shower {
 public:
  explicit Shower(lua_State* L) : L_(L), state_(pg::vm::find_state(L)) {}

  std::string nested(int i, int depth) {
    luaL_checkstack(L_, 12, "the prompt");
    if (pg::vm::Box* box = pg::vm::to_box(L_, state_, i))
      return box->get().defined() ? "[" + to_string(box->get().type()) + "]" : with_tostring(L_, i);
    if (lua_type(L_, i) == LUA_TSTRING) return quoted({lua_tostring(L_, i), lua_objlen(L_, i)});
    return lua_istable(L_, i) && !has_tostring(i) ? table(i, depth) : with_tostring(L_, i);
  }

  bool has_tostring(int i) {
    if (!luaL_getmetafield(L_, i, "__tostring")) return false;
    lua_pop(L_, 1);
    return true;
  }

  std::string table(int i, int depth) {
    const void* self = lua_topointer(L_, i);
    if (std::find(open_.begin(), open_.end(), self) != open_.end()) return "{itself}";
    if (depth >= kDepth) return "{…}";
    open_.push_back(self);
    std::vector<std::string> parts;
    const int n = int(std::min<size_t>(lua_objlen(L_, i), size_t(kItems)));
    for (int k = 1; k <= n; ++k) {
      lua_rawgeti(L_, i, k);
      parts.push_back(nested(lua_gettop(L_), depth + 1));
      lua_pop(L_, 1);
    }
    if (size_t(n) < lua_objlen(L_, i)) parts.push_back("…");
    add_fields(i, depth, parts);
    open_.pop_back();
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }

 private:
  // Adds the fields outside of the array part, sorted.
  void add_fields(int i, int depth, std::vector<std::string>& parts) {
    const double n = double(lua_objlen(L_, i));
    std::vector<std::string> fields;
    for (lua_pushnil(L_); lua_next(L_, i); lua_pop(L_, 1)) {
      if (fields.size() > size_t(kItems)) continue;
      if (lua_type(L_, -2) == LUA_TNUMBER && lua_tonumber(L_, -2) >= 1 && lua_tonumber(L_, -2) <= n) continue;
      const int top = lua_gettop(L_);
      std::string key = lua_type(L_, -2) == LUA_TSTRING ? std::string(lua_tostring(L_, -2), lua_objlen(L_, -2)) : "";
      if (!is_identifier(key)) key = "[" + nested(top - 1, kDepth) + "]";
      fields.push_back(key + " = " + nested(top, depth + 1));
    }
    std::sort(fields.begin(), fields.end());
    if (fields.size() > size_t(kItems)) fields.back() = "…";
    parts.insert(parts.end(), fields.begin(), fields.end());
  }

  lua_State* L_;
  pg::vm::State& state_;
  std::vector<const void*> open_;
};

}  // namespace

std::string show(lua_State* L, int i) {
  Shower shower(L);
  return lua_istable(L, i) && !shower.has_tostring(i) ? shower.table(i, 0) : with_tostring(L, i);
}

}  // namespace pg::repl
