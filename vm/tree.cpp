#include "vm/state.h"
#include "vm/tree.h"

namespace pg::vm {
namespace {

void push_key(lua_State* L, const Tree& key) {
  if (key.kind == Tree::Kind::kString)
    lua_pushlstring(L, key.text.data(), key.text.size());
  else
    lua_pushnumber(L, key.number);
}

void push_tree(lua_State* L, const Tree& tree) {
  need_stack(L, 8, "tree");
  lua_createtable(L, 0, 3);
  const bool leaf = tree.kind == Tree::Kind::kInput || tree.kind == Tree::Kind::kOutput;
  lua_pushstring(L, tree.kind == Tree::Kind::kInput    ? "input"
                    : tree.kind == Tree::Kind::kOutput ? "output"
                    : tree.kind == Tree::Kind::kTable  ? "table"
                                                       : "value");
  lua_setfield(L, -2, "kind");
  if (leaf) {
    lua_pushnumber(L, tree.index + 1);
    lua_setfield(L, -2, "index");
  } else if (tree.kind == Tree::Kind::kTable) {
    lua_newtable(L);
    for (size_t k = 0; k < tree.keys.size(); ++k) push_key(L, tree.keys[k]), lua_rawseti(L, -2, int(k) + 1);
    lua_setfield(L, -2, "keys");
    push_trees(L, tree.values);
    lua_setfield(L, -2, "values");
  } else if (tree.kind != Tree::Kind::kNil) {
    if (tree.kind == Tree::Kind::kBoolean)
      lua_pushboolean(L, tree.boolean);
    else
      push_key(L, tree);
    lua_setfield(L, -2, "value");
  }
}

Tree scalar_at(lua_State* L, int i) {
  Tree tree;
  switch (lua_type(L, i)) {
    case LUA_TNIL:
      break;
    case LUA_TBOOLEAN:
      tree.kind = Tree::Kind::kBoolean;
      tree.boolean = lua_toboolean(L, i);
      break;
    case LUA_TNUMBER:
      tree.kind = Tree::Kind::kNumber;
      tree.number = lua_tonumber(L, i);
      break;
    case LUA_TSTRING: {
      size_t size = 0;
      const char* text = lua_tolstring(L, i, &size);
      tree.kind = Tree::Kind::kString;
      tree.text.assign(text, size);
      break;
    }
    default:
      throw Error(fmt::format("graph: arguments and results cannot contain a {}", luaL_typename(L, i)));
  }
  return tree;
}

std::vector<Tree> list_at(lua_State* L, int i, FunctionRef<int32_t(bool, int32_t)> place, int depth);

Tree tree_at(lua_State* L, int i, FunctionRef<int32_t(bool, int32_t)> place, int depth) {
  if (depth > kMaxTreeDepth)
    throw Error(fmt::format("graph: arguments or results nest more than {} deep", kMaxTreeDepth));
  need_stack(L, 8, "tree");
  lua_getfield(L, i, "kind");
  const std::string kind = lua_tostring(L, -1) ? lua_tostring(L, -1) : "";
  lua_pop(L, 1);
  Tree tree;
  if (kind == "input" || kind == "output") {
    lua_getfield(L, i, "index");
    const int32_t index = place(kind == "output", int32_t(lua_tonumber(L, -1)));
    lua_pop(L, 1);
    return kind == "input" ? Tree::input(index) : Tree::output(index);
  }
  if (kind == "table") {
    tree.kind = Tree::Kind::kTable;
    lua_getfield(L, i, "keys");
    for (int k = 1, n = int(lua_objlen(L, -1)); k <= n; ++k) {
      lua_rawgeti(L, -1, k);
      tree.keys.push_back(scalar_at(L, lua_gettop(L)));
      lua_pop(L, 1);
    }
    lua_getfield(L, i, "values");
    tree.values = list_at(L, lua_gettop(L), place, depth + 1);
    lua_pop(L, 2);
    return tree;
  }
  lua_getfield(L, i, "value");
  tree = scalar_at(L, lua_gettop(L));
  lua_pop(L, 1);
  return tree;
}

std::vector<Tree> list_at(lua_State* L, int i, FunctionRef<int32_t(bool, int32_t)> place, int depth) {
  std::vector<Tree> out;
  for (int k = 1, n = int(lua_objlen(L, i)); k <= n; ++k) {
    lua_rawgeti(L, i, k);
    out.push_back(tree_at(L, lua_gettop(L), place, depth));
    lua_pop(L, 1);
  }
  return out;
}

}  // namespace

void push_trees(lua_State* L, const std::vector<Tree>& trees) {
  lua_createtable(L, int(trees.size()), 0);
  for (size_t k = 0; k < trees.size(); ++k) {
    push_tree(L, trees[k]);
    lua_rawseti(L, -2, int(k) + 1);
  }
}

std::vector<Tree> read_trees(lua_State* L, int i, const char* name, FunctionRef<int32_t(bool, int32_t)> place) {
  lua_getfield(L, i, name);
  std::vector<Tree> out = list_at(L, lua_gettop(L), place, 0);
  lua_pop(L, 1);
  return out;
}

}  // namespace pg::vm
