// Functions of string, and table.concat, for sandboxes: their work counts as instructions, and their results have a
// largest size.
#include <algorithm>
#include <cstring>
#include <utility>

#include "vm/call_depth.h"
#include "vm/lua_text.h"
#include "vm/pattern.h"
#include "vm/sandbox.h"

namespace pg::vm {
namespace {

std::string_view check_text(lua_State* L, int i) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, i, &size);
  return {text, size};
}

// Raises unless a result of this size is allowed.
void check_result(lua_State* L, const char* function, double bytes) {
  if (bytes > double(kMaxSandboxString))
    luaL_error(L, "%s: the result is longer than %d bytes", function, int(kMaxSandboxString));
}

// The place in a string that a position of Lua names, from 0 to its size.
size_t start_at(lua_Integer position, size_t size) {
  if (position < 0) position += lua_Integer(size) + 1;
  return size_t(std::max<lua_Integer>(position, 1) - 1);
}

bool is_plain(lua_State* L, std::string_view pattern) {
  spend(L, pattern.size() / 16);
  return pattern.find_first_of("^$*+?.([%-") == pattern.npos;
}

int find_plain(lua_State* L, std::string_view text, std::string_view part, size_t from) {
  spend(L, (text.size() - from) / kBytesOfAnInstruction);
  const void* found =
      part.empty() ? text.data() + from : memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (!found) return lua_pushnil(L), 1;
  const lua_Integer first = static_cast<const char*>(found) - text.data() + 1;
  lua_pushinteger(L, first);
  lua_pushinteger(L, first + lua_Integer(part.size()) - 1);
  return 2;
}

int search(lua_State* L, bool find) {
  const std::string_view text = check_text(L, 1);
  std::string_view pattern = check_text(L, 2);
  const size_t from = std::min(start_at(luaL_optinteger(L, 3, 1), text.size()), text.size());
  if (find && (lua_toboolean(L, 4) || is_plain(L, pattern))) return find_plain(L, text, pattern, from);
  const bool anchored = pattern.starts_with('^');
  if (anchored) pattern.remove_prefix(1);
  PatternMatch match(L, text, pattern);
  for (const char* at = text.data() + from; at <= match.end(); ++at) {
    if (const char* last = match.at(at)) {
      match.settle();
      if (!find) return match.push_captures(at, last);
      lua_pushinteger(L, at - match.begin() + 1);
      lua_pushinteger(L, last - match.begin());
      return match.push_captures(nullptr, nullptr) + 2;
    }
    if (anchored) break;
  }
  match.settle();
  return lua_pushnil(L), 1;
}

int find(lua_State* L) { return search(L, true); }
int match_text(lua_State* L) { return search(L, false); }

// The iterator of gmatch. Upvalues: text, pattern, the next place.
int next_match(lua_State* L) {
  size_t size = 0, pattern_size = 0;
  const char* text = lua_tolstring(L, lua_upvalueindex(1), &size);
  const char* pattern = lua_tolstring(L, lua_upvalueindex(2), &pattern_size);
  PatternMatch match(L, {text, size}, {pattern, pattern_size});
  for (const char* at = text + lua_tointeger(L, lua_upvalueindex(3)); at <= match.end(); ++at) {
    const char* last = match.at(at);
    if (!last) continue;
    match.settle();
    lua_pushinteger(L, last - text + (last == at ? 1 : 0));
    lua_replace(L, lua_upvalueindex(3));
    return match.push_captures(at, last);
  }
  match.settle();
  return 0;
}

int gmatch(lua_State* L) {
  check_text(L, 1);
  check_text(L, 2);
  lua_settop(L, 2);
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_match, 3);
  return 1;
}

// What gsub builds.
class Replacement {
 public:
  Replacement(lua_State* L, PatternMatch& match) : L_(L), match_(match), out_(L) {}

  void add(const char* text, size_t size) {
    count(size);
    out_.add({text, size});
  }

  // Adds what replaces a match.
  void add_match(const char* first, const char* last) {
    if (lua_isstring(L_, 3) && lua_type(L_, 3) != LUA_TFUNCTION) return add_template(first, last);
    if (lua_istable(L_, 3)) {
      match_.push_capture(0, first, last);
      lua_gettable(L_, 3);
    } else {
      lua_pushvalue(L_, 3);
      lua_call(L_, match_.push_captures(first, last), 1);
    }
    if (!lua_toboolean(L_, -1)) {
      lua_pop(L_, 1);
      return add(first, size_t(last - first));
    }
    if (!lua_isstring(L_, -1)) luaL_error(L_, "invalid replacement value (a %s)", luaL_typename(L_, -1));
    add_value();
  }

  void push() const { out_.push(); }

 private:
  static constexpr size_t kCounted = size_t(1) << 12;  // bytes that are counted together

  void count(size_t more) {
    uncounted_ += more;
    if (uncounted_ < kCounted) return;
    check_result(L_, "gsub", double(out_.size() + more));
    spend(L_, std::exchange(uncounted_, 0) / kBytesOfAnInstruction);
  }

  // Adds the value on top of the stack, which it pops.
  void add_value() {
    count(lua_objlen(L_, -1));
    out_.add_value();
  }

  void add_template(const char* first, const char* last) {
    size_t size = 0;
    const char* text = lua_tolstring(L_, 3, &size);
    for (const char *at = text, *end = text + size; at < end; ++at) {
      if (*at != '%') {
        add(at, 1);
      } else if (++at == end) {
        luaL_error(L_, "invalid use of '%%' in replacement string");
      } else if (*at < '0' || *at > '9') {
        add(at, 1);
      } else if (*at == '0') {
        add(first, size_t(last - first));
      } else {
        match_.push_capture(*at - '1', first, last);
        add_value();
      }
    }
  }

  lua_State* L_;
  PatternMatch& match_;
  LuaText out_;
  size_t uncounted_ = 0;
};

int gsub(lua_State* L) {
  check_call_depth(L, "too many nested calls of gsub");
  const std::string_view text = check_text(L, 1);
  std::string_view pattern = check_text(L, 2);
  const int type = lua_type(L, 3);
  if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TFUNCTION && type != LUA_TTABLE)
    return luaL_argerror(L, 3, "string/function/table expected");
  const double most = luaL_optnumber(L, 4, double(text.size()) + 1);
  const bool anchored = pattern.starts_with('^');
  if (anchored) pattern.remove_prefix(1);
  lua_settop(L, 3);
  if (type == LUA_TNUMBER) lua_tostring(L, 3);
  PatternMatch match(L, text, pattern);
  Replacement out(L, match);
  const char* at = text.data();
  lua_Integer count = 0;
  while (double(count) < most) {
    const char* last = match.at(at);
    if (last) {
      ++count;
      out.add_match(at, last);
    }
    if (last && last > at)
      at = last;
    else if (at < match.end())
      out.add(at++, 1);
    else
      break;
    if (anchored) break;
  }
  out.add(at, size_t(match.end() - at));
  match.settle();
  out.push();
  lua_pushinteger(L, count);
  return 2;
}

// Pushes the bytes of the argument, each changed by `change`, in the same order or backwards.
template <class F>
int change_bytes(lua_State* L, F&& change, bool backwards = false) {
  const std::string_view text = check_text(L, 1);
  spend(L, text.size() / kBytesOfAnInstruction);
  auto* const out = static_cast<char*>(lua_newuserdata(L, text.size()));
  std::transform(text.begin(), text.end(), out, change);
  if (backwards) std::reverse(out, out + text.size());
  lua_pushlstring(L, out, text.size());
  return 1;
}

int lower(lua_State* L) {
  return change_bytes(L, [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; });
}

int upper(lua_State* L) {
  return change_bytes(L, [](char c) { return c >= 'a' && c <= 'z' ? char(c - ('a' - 'A')) : c; });
}

int reverse(lua_State* L) {
  return change_bytes(
      L, [](char c) { return c; }, true);
}

// sub(text, first[, last])
int sub(lua_State* L) {
  const std::string_view text = check_text(L, 1);
  const size_t from = start_at(luaL_checkinteger(L, 2), text.size());
  lua_Integer last = luaL_optinteger(L, 3, -1);
  if (last < 0) last += lua_Integer(text.size()) + 1;
  const size_t end = size_t(std::clamp<lua_Integer>(last, 0, lua_Integer(text.size())));
  const size_t size = end > from ? end - from : 0;
  spend(L, size / kBytesOfAnInstruction);
  lua_pushlstring(L, size ? text.data() + from : "", size);
  return 1;
}

// Checks the argument of a conversion: Lua's format would not name its function in the error.
void check_conversion(lua_State* L, char conversion, int i) {
  if (!conversion || !std::strchr("cdiouxXaAeEfFgGqsp", conversion)) return;
  luaL_checkany(L, i);
  if (!std::strchr("qsp", conversion)) luaL_checknumber(L, i);
}

// format(text, …); the upvalue is Lua's.
int format(lua_State* L) {
  const std::string_view text = check_text(L, 1);
  size_t bytes = text.size();
  for (int i = 2, n = lua_gettop(L); i <= n; ++i)
    if (lua_type(L, i) == LUA_TSTRING) bytes += lua_objlen(L, i);
  int argument = 1;
  for (size_t at = 0; (at = text.find('%', at)) != text.npos; ++at) {
    at = text.find_first_not_of("-+ #0123456789.", at + 1);
    if (at == text.npos) break;
    if (text[at] == '%') continue;
    check_conversion(L, text[at], ++argument);
    if (text[at] == 'q' && lua_type(L, argument) == LUA_TSTRING) bytes += 3 * lua_objlen(L, argument);  // escapes
  }
  check_result(L, "format", double(bytes));
  spend(L, bytes / kBytesOfAnInstruction);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

// rep(text, n[, separator]); the upvalue is Lua's.
int rep(lua_State* L) {
  const std::string_view text = check_text(L, 1);
  const double n = std::max(0.0, double(luaL_checkinteger(L, 2)));
  size_t between = 0;
  luaL_optlstring(L, 3, "", &between);
  if (n == 0 || text.size() + between == 0) return lua_pushliteral(L, ""), 1;
  const double bytes = n * double(text.size()) + (n - 1) * double(between);
  check_result(L, "rep", bytes);
  spend(L, size_t(bytes) / kBytesOfAnInstruction);
  lua_settop(L, 3);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_isnil(L, 4) ? (lua_pop(L, 1), 2) : 3, 1);
  return 1;
}

// concat(list[, separator[, first[, last]]]); the upvalue is Lua's.
int concat(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 4);
  const double between = double(lua_isnil(L, 2) ? 0 : check_text(L, 2).size());
  const lua_Integer first = luaL_optinteger(L, 3, 1);
  const lua_Integer last = lua_isnil(L, 4) ? lua_Integer(lua_objlen(L, 1)) : luaL_checkinteger(L, 4);
  double bytes = 0;
  for (lua_Integer i = first; i <= last; ++i) {
    lua_rawgeti(L, 1, int(i));
    if (!lua_isstring(L, -1)) break;  // Lua's raises the error
    bytes += between + double(lua_type(L, -1) == LUA_TNUMBER ? 24 : lua_objlen(L, -1));
    lua_pop(L, 1);
    if (i % 4096 != 0) continue;
    check_result(L, "concat", bytes);
    spend(L, 4096);
  }
  lua_settop(L, 4);
  check_result(L, "concat", bytes);
  spend(L, size_t(bytes) / kBytesOfAnInstruction);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 4, 1);
  return 1;
}

}  // namespace

void set_limited_strings(lua_State* L, int full) {
  const std::pair<const char*, lua_CFunction> functions[] = {
      {"find", find},   {"match", match_text}, {"gmatch", gmatch}, {"gsub", gsub}, {"lower", lower},
      {"upper", upper}, {"reverse", reverse},  {"sub", sub},       {"rep", rep},   {"format", format}};
  for (const auto& [name, function] : functions) {
    lua_getfield(L, full, name);
    lua_pushcclosure(L, function, 1);
    lua_setfield(L, -2, name);
  }
}

void set_limited_concat(lua_State* L, int full) {
  lua_getfield(L, full, "concat");
  lua_pushcclosure(L, concat, 1);
  lua_setfield(L, -2, "concat");
}

}  // namespace pg::vm
