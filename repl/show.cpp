#include "repl/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <vector>

#include "vm/bindings.h"
#include "vm/box.h"

namespace pg::repl {
namespace {

constexpr int kDepth = 3;
constexpr int kItems = 60;      // the most items shown of one table
constexpr int kAllItems = 400;  // the most items shown of a table with the tables in it
constexpr size_t kWidth = 100;  // columns from which a table has a line for each item
constexpr size_t kShort = 30;   // the most bytes of items that share a line
constexpr size_t kNested = 60;  // the most bytes shown of an object in a table

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

// Adds a byte. Those that control a terminal become escapes of Lua.
void add_visible(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 32 || byte == 127)
    out += fmt::format("\\{:03}", byte);
  else
    out += c;
}

// Returns the text of a value as it is printed by itself: its lines and tabs stay.
std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\t')
      out += c;
    else
      add_visible(out, c);
  }
  return out;
}

// The start of a character of several bytes, or the end of the text, from which the first `most` bytes can be cut.
size_t cut_of(std::string_view text, size_t most) {
  if (most >= text.size()) return text.size();
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return most;
}

std::string quoted(std::string_view text) {
  const size_t end = cut_of(text, 200);
  std::string out = "\"";
  for (const char c : text.substr(0, end)) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else
      add_visible(out, c);
  }
  return out + (end < text.size() ? "\"…" : "\"");
}

// Returns the start of a text that other values share a line with.
std::string short_text(std::string text) {
  const size_t cut = cut_of(text, std::min(text.find('\n'), kNested));
  return visible(text.substr(0, cut)) + (cut < text.size() ? "…" : "");
}

// Whether the text names a field in a table constructor. Lua itself knows its keywords.
bool is_identifier(lua_State* L, const std::string& text) {
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
    return false;
  const bool loads = luaL_loadstring(L, ("local " + text).c_str()) == 0;
  lua_pop(L, 1);
  return loads;
}

class Shower {
 public:
  explicit Shower(lua_State* L) : L_(L), state_(pg::vm::find_state(L)) {}

  std::string nested(int i, int depth) {
    luaL_checkstack(L_, 12, "the prompt");
    if (pg::vm::Box* box = pg::vm::to_box(L_, state_, i))
      return box->get().defined() ? "[" + to_string(box->get().type()) + "]" : with_tostring(L_, i);
    if (lua_type(L_, i) == LUA_TSTRING) return quoted({lua_tostring(L_, i), lua_objlen(L_, i)});
    return lua_istable(L_, i) && !has_tostring(i) ? table(i, depth) : short_text(with_tostring(L_, i));
  }

  bool has_tostring(int i) {
    if (!luaL_getmetafield(L_, i, "__tostring")) return false;
    lua_pop(L_, 1);
    return true;
  }

  std::string table(int i, int depth) {
    const void* self = lua_topointer(L_, i);
    if (std::find(open_.begin(), open_.end(), self) != open_.end()) return "{itself}";
    if (depth >= kDepth || items_ > kAllItems) return "{…}";
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
    items_ += int(parts.size());
    open_.pop_back();
    const std::string line = fmt::format("{{{}}}", fmt::join(parts, ", "));
    if (line.size() <= kWidth || parts.size() < 2) return line;
    return in_lines(parts, size_t(n) + (size_t(n) < lua_objlen(L_, i)), std::string(size_t(depth) * 2 + 2, ' '));
  }

 private:
  // Joins the parts with a line for each; short ones among the first `items` share lines.
  static std::string in_lines(const std::vector<std::string>& parts, size_t items, const std::string& indent) {
    std::string out = "{";
    size_t used = kWidth;
    for (size_t k = 0; k < parts.size(); ++k) {
      const bool shares = k < items && parts[k].size() <= kShort && used + parts[k].size() + 2 <= kWidth;
      out += (k > 0 ? "," : "") + (shares ? " " : "\n" + indent) + parts[k];
      used = k < items && parts[k].size() <= kShort ? (shares ? used : indent.size()) + parts[k].size() + 2 : kWidth;
    }
    return out + "\n" + indent.substr(2) + "}";
  }

  // Adds the fields outside of the array part, sorted.
  void add_fields(int i, int depth, std::vector<std::string>& parts) {
    const double n = double(lua_objlen(L_, i));
    std::vector<std::string> fields;
    for (lua_pushnil(L_); lua_next(L_, i); lua_pop(L_, 1)) {
      if (fields.size() > size_t(kItems)) continue;
      if (lua_type(L_, -2) == LUA_TNUMBER && lua_tonumber(L_, -2) >= 1 && lua_tonumber(L_, -2) <= n) continue;
      const int top = lua_gettop(L_);
      std::string key = lua_type(L_, -2) == LUA_TSTRING ? std::string(lua_tostring(L_, -2), lua_objlen(L_, -2)) : "";
      if (!is_identifier(L_, key)) key = "[" + nested(top - 1, kDepth) + "]";
      fields.push_back(key + " = " + nested(top, depth + 1));
    }
    std::sort(fields.begin(), fields.end());
    if (fields.size() > size_t(kItems)) fields.back() = "…";
    parts.insert(parts.end(), fields.begin(), fields.end());
  }

  lua_State* L_;
  pg::vm::State& state_;
  std::vector<const void*> open_;
  int items_ = 0;
};

}  // namespace

namespace {

// Pushes the text of a block with the counts and shapes of its parameters. Returns false for other values.
bool push_block_text(lua_State* L, int i) {
  if (!luaL_getmetafield(L, i, "_is_class")) return false;
  lua_pop(L, 1);
  const int top = lua_gettop(L);
  vm::push_library_module(L, "tools.tree");
  lua_getfield(L, -1, "text");
  lua_pushvalue(L, i);
  lua_call(L, 1, 1);
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
  if (lua_isstring(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

// Returns the column behind the last line of a text: characters, with tabs to the next multiple of 8.
size_t column_behind(std::string_view text) {
  size_t column = 0;
  for (const char c : text.substr(text.rfind('\n') + 1)) {
    if (c == '\t')
      column += 8 - column % 8;
    else
      column += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }
  return column;
}

}  // namespace

std::string show(lua_State* L, int i) {
  Shower shower(L);
  if (!lua_istable(L, i)) return visible(with_tostring(L, i));
  if (!shower.has_tostring(i)) return shower.table(i, 0);
  if (!push_block_text(L, i)) return visible(with_tostring(L, i));
  std::string text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

void add_aligned(std::string& line, const std::string& before, const std::string& text) {
  line += before;
  const std::string indent(text.find('\n') == text.npos ? 0 : column_behind(line), ' ');
  for (const char c : text) {
    line += c;
    if (c == '\n') line += indent;
  }
}

int print_aligned(lua_State* L) {
  const int n = lua_gettop(L);
  std::string line;
  for (int i = 1; i <= n; ++i) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    size_t size = 0;
    const char* text = lua_tolstring(L, -1, &size);
    if (!text) return luaL_error(L, "'tostring' must return a string to 'print'");
    add_aligned(line, i > 1 ? "\t" : "", std::string(text, size));
    lua_pop(L, 1);
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  return 0;
}

}  // namespace pg::repl
