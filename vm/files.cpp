// Saving and loading tensors.

#include <algorithm>

#include "tensor/io/file.h"
#include "tensor/io/formats.h"
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {
namespace {

bool ends_with(const std::string& path, const char* ending) { return std::string_view(path).ends_with(ending); }

[[noreturn]] void bad_ending(const char* op, const std::string& path) {
  bad_argument(op, "path", "a path that ends in .safetensors or .npy", '"' + path + '"');
}

// Returns the string at index i, including zero bytes.
std::string string_at(lua_State* L, int i) {
  size_t size = 0;
  const char* text = lua_tolstring(L, i, &size);
  return {text, size};
}

void read_metadata(lua_State* L, State& state, int i, NamedTensors& content) {
  if (lua_isnoneornil(L, i)) return;
  for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
    const int value = lua_gettop(L);
    if (lua_type(L, value - 1) != LUA_TSTRING)
      bad_argument("save", "metadata", "string keys", describe(L, state, value - 1));
    content.metadata[string_at(L, value - 1)] = check_string(L, state, value, "save", "metadata");
  }
}

// save_tensors(path, tensors, metadata, op) writes tensors by name (safetensors) or one tensor (npy), atomically. If
// the caller passes its name `op`, the format is safetensors and the path may have any ending.
int save_tensors(lua_State* L, State& state) {
  state.ctx.poll();
  const std::string path = check_string(L, state, 1, "save", "path");
  const bool any_ending = !lua_isnoneornil(L, 4);
  const std::string op = any_ending ? check_string(L, state, 4, "save", "op") : "save";
  if (to_box(L, state, 2)) {
    if (!ends_with(path, ".npy"))
      bad_argument("save", "path", "a path that ends in .npy for a single tensor", '"' + path + '"');
    const Value value = to_contiguous(state.ctx, check_value(L, state, 2, "save", "tensors").detached());
    access_files(state, op, [&] { save_npy(path, value); });
    return 0;
  }
  if (!any_ending && !ends_with(path, ".safetensors"))
    bad_argument("save", "path", "a path that ends in .safetensors for a table of tensors", '"' + path + '"');
  NamedTensors content;
  for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
    const int value = lua_gettop(L);
    if (lua_type(L, value - 1) != LUA_TSTRING)
      bad_argument("save", "tensors", "tensors by name", describe(L, state, value - 1));
    const Value tensor = check_value(L, state, value, op.c_str(), lua_tostring(L, value - 1));
    content.tensors.emplace_back(string_at(L, value - 1), to_contiguous(state.ctx, tensor.detached()));
  }
  std::sort(content.tensors.begin(), content.tensors.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  read_metadata(L, state, 3, content);
  access_files(state, op, [&] { save_safetensors(path, content); });
  return 0;
}

// load_tensors(path, op, any_ending) → tensors by name and the metadata (safetensors), or one tensor (npy). With
// any_ending the format is safetensors for any path. op is the name of the caller.
int load_tensors(lua_State* L, State& state) {
  state.ctx.poll();
  const std::string path = check_string(L, state, 1, "load", "path"), op = check_string(L, state, 2, "load", "op");
  const bool any_ending = lua_toboolean(L, 3);
  if (!any_ending && (ends_with(path, ".npy") || ends_with(path, ".npy.gz"))) {
    Value value;
    access_files(state, op, [&] { value = load_npy(path); });
    push_box(L, state, std::move(value));
    return 1;
  }
  if (!any_ending && !ends_with(path, ".safetensors")) bad_ending(op.c_str(), path);
  NamedTensors content;
  access_files(state, op, [&] { content = load_safetensors(path); });
  lua_createtable(L, 0, int(content.tensors.size()));
  for (auto& [name, value] : content.tensors) {
    lua_pushlstring(L, name.data(), name.size());
    push_box(L, state, std::move(value));
    lua_rawset(L, -3);
  }
  lua_newtable(L);
  for (const auto& [key, text] : content.metadata) {
    lua_pushlstring(L, key.data(), key.size());
    lua_pushlstring(L, text.data(), text.size());
    lua_rawset(L, -3);
  }
  return 2;
}

// load_idx(path, op) → the tensor of an idx file.
int load_idx_file(lua_State* L, State& state) {
  state.ctx.poll();
  const std::string path = check_string(L, state, 1, "load_idx", "path"),
                    op = check_string(L, state, 2, "load_idx", "op");
  Value value;
  access_files(state, op, [&] { value = load_idx(path); });
  push_box(L, state, std::move(value));
  return 1;
}

int read_whole_file(lua_State* L, State& state) {
  const std::string path = check_string(L, state, 1, "read_file", "path");
  std::string text;
  state.ctx.cancellable([&] { text = read_file(path); });
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

// can_read(path) → whether there is a file that can be read.
int can_read_file(lua_State* L, State& state) {
  lua_pushboolean(L, can_read(check_string(L, state, 1, "load", "path")));
  return 1;
}

}  // namespace

void open_files(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"save_tensors", entry<save_tensors>},
                      {"load_tensors", entry<load_tensors>},
                      {"load_idx", entry<load_idx_file>},
                      {"read_file", entry<read_whole_file>},
                      {"can_read", entry<can_read_file>}});
}

}  // namespace pg::vm
