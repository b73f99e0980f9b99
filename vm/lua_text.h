// A text that grows in memory of Lua.
#pragma once
#include <algorithm>
#include <cstring>
#include <lua.hpp>
#include <string_view>

namespace pg::vm {

// Takes one slot of Lua's stack. Unlike luaL_Buffer it takes no room on the stack of C, where functions that call back
// may nest, and values may be left on Lua's stack. A Lua error frees it.
class LuaText {
 public:
  explicit LuaText(lua_State* L) : L_(L) {
    lua_pushnil(L);
    slot_ = lua_gettop(L);
  }
  LuaText(const LuaText&) = delete;

  void add(std::string_view part) {
    if (part.empty()) return;
    if (part.size() > capacity_ - size_) grow(part.size());
    std::memcpy(data_ + size_, part.data(), part.size());
    size_ += part.size();
  }

  // Adds the string or number on top of the stack, which it pops.
  void add_value() {
    size_t size = 0;
    const char* text = lua_tolstring(L_, -1, &size);
    add({text, size});
    lua_pop(L_, 1);
  }

  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }
  void push() const { lua_pushlstring(L_, size_ ? data_ : "", size_); }

 private:
  void grow(size_t more) {
    capacity_ = std::max({2 * capacity_, size_ + more, size_t(64)});
    auto* const data = static_cast<char*>(lua_newuserdata(L_, capacity_));
    if (size_) std::memcpy(data, data_, size_);
    data_ = data;
    lua_replace(L_, slot_);
  }

  lua_State* const L_;
  int slot_ = 0;
  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace pg::vm
