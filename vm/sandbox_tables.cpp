// Functions of table for sandboxes: their work counts as instructions.
#include <algorithm>
#include <utility>

#include "vm/call_depth.h"
#include "vm/pattern.h"
#include "vm/sandbox.h"

namespace pg::vm {
namespace {

// Sorts the elements 1 … n of the table at index 1 by `<`, or by the function at index 2. Heap sort: no order of the
// elements makes it slow, and it only exchanges elements, so that a function that is no order, raises an error or
// changes the table does no harm.
class Sorter {
 public:
  explicit Sorter(lua_State* L) : L_(L), by_function_(!lua_isnil(L, 2)) {}

  void sort(int n) {
    for (int root = n / 2; root > 0; --root) sift(root, n);
    for (int last = n; last > 1; --last) {
      push(1), push(last);
      store(1), store(last);
      sift(1, last - 1);
    }
  }

 private:
  static constexpr size_t kCompare = 4;  // instructions of a comparison

  void push(int i) { lua_rawgeti(L_, 1, i); }
  void store(int i) { lua_rawseti(L_, 1, i); }

  // Whether the value below the top of the stack comes before the one on top by `<`.
  bool less() {
    if (lua_type(L_, -1) == LUA_TSTRING && lua_type(L_, -2) == LUA_TSTRING) {
      if (lua_rawequal(L_, -1, -2)) return false;  // Lua compares all bytes
      spend(L_, std::min(lua_objlen(L_, -1), lua_objlen(L_, -2)) / kBytesOfAnInstruction);
    }
    return lua_lessthan(L_, -2, -1);
  }

  bool before(int a, int b) {
    spend(L_, kCompare);
    if (by_function_) lua_pushvalue(L_, 2);
    push(a), push(b);
    if (by_function_) lua_call(L_, 2, 1);
    const bool found = by_function_ ? lua_toboolean(L_, -1) : less();
    lua_settop(L_, 2);
    return found;
  }

  // Moves the element at `root` down to its place in the heap 1 … n. Most belong near the end, so it follows the larger
  // children to the end and then goes back, which takes half of the comparisons.
  void sift(int root, int n) {
    int at = root;
    while (at < n - at) at = before(2 * at, 2 * at + 1) ? 2 * at + 1 : 2 * at;
    if (at == n - at) at = n;
    while (at > root && before(at, root)) at /= 2;
    push(root);
    for (; at > root; at /= 2) {
      push(at);
      lua_insert(L_, -2);
      store(at);
    }
    store(root);
  }

  lua_State* const L_;
  const bool by_function_;
};

// sort(list[, before])
int sort(lua_State* L) {
  check_call_depth(L, "too many nested calls of sort");
  luaL_checktype(L, 1, LUA_TTABLE);
  if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  Sorter(L).sort(int(lua_objlen(L, 1)));
  return 0;
}

// insert(list[, place], value)
int insert(lua_State* L) {
  constexpr int kCounted = 4096;  // elements that are counted together
  luaL_checktype(L, 1, LUA_TTABLE);
  const int count = lua_gettop(L);
  if (count != 2 && count != 3) return luaL_error(L, "wrong number of arguments to 'insert'");
  int at = int(lua_objlen(L, 1)) + 1;
  if (count == 3) {
    const int place = int(luaL_checkinteger(L, 2));
    for (; at > place; --at) {
      if (at % kCounted == 0) spend(L, kCounted);
      lua_rawgeti(L, 1, at - 1);
      lua_rawseti(L, 1, at);
    }
    at = place;
  }
  lua_pushvalue(L, count);
  lua_rawseti(L, 1, at);
  return 0;
}

}  // namespace

void set_limited_tables(lua_State* L, int full) {
  set_limited_concat(L, full);
  for (const auto& [name, function] : {std::pair<const char*, lua_CFunction>{"sort", sort}, {"insert", insert}}) {
    lua_pushcfunction(L, function);
    lua_setfield(L, -2, name);
  }
}

}  // namespace pg::vm
