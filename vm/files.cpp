// Saving and loading tensors.

#include <algorithm>

#include "tensor/io/file.h"
#include "tensor/io/formats.h"
#include "tensor/io/json.h"
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {
namespace {

bool ends_with(const std::string& path, const char* ending) { return std::string_view(path).ends_with(ending); }

[[noreturn]] void bad_ending(const char* op, const std::string& path) {
  bad_argument(op, "path", "a path that ends in .safetensors, .npy, .npz or .params", '"' + path + '"');
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

// The arrays of a .params file: by name, or as a list.
void push_params(lua_State* L, State& state, Params params) {
  lua_createtable(L, int(params.arrays.size()), 0);
  for (size_t i = 0; i < params.arrays.size(); ++i) {
    if (params.names.empty())
      lua_pushnumber(L, double(i) + 1);
    else
      lua_pushlstring(L, params.names[i].data(), params.names[i].size());
    push_box(L, state, std::move(params.arrays[i]));
    lua_rawset(L, -3);
  }
}

// load_tensors(path, op, any_ending) → tensors by name and the metadata (safetensors, npz), tensors by name or in a
// list (.params), or one tensor (npy). With any_ending the format is safetensors or .params for any path. op is the
// name of the caller.
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
  bool params = ends_with(path, ".params");
  const bool npz = !any_ending && ends_with(path, ".npz");
  if (!any_ending && !params && !npz && !ends_with(path, ".safetensors")) bad_ending(op.c_str(), path);
  if (any_ending) access_files(state, op, [&] { params = is_params(path); });
  if (params) {
    Params arrays;
    access_files(state, op, [&] { arrays = load_params(path); });
    push_params(L, state, std::move(arrays));
    return 1;
  }
  NamedTensors content;
  access_files(state, op, [&] { content = npz ? load_npz(path) : load_safetensors(path); });
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

// A JSON text as tables; null becomes nil. Errors begin with the name of the text.
class TableReader : public JsonReader {
 public:
  TableReader(lua_State* L, std::string name, std::string_view text) : JsonReader(std::move(name), text), L_(L) {}

  void push() {
    luaL_checkstack(L_, 4, "JSON");
    switch (kind()) {
      case Kind::kNull:
        null();
        return lua_pushnil(L_);
      case Kind::kBoolean:
        return lua_pushboolean(L_, boolean());
      case Kind::kNumber:
        return lua_pushnumber(L_, number());
      case Kind::kString:
        return push_text(string());
      case Kind::kArray:
        lua_newtable(L_);
        return array([&](size_t i) {
          push();
          lua_rawseti(L_, -2, int(i) + 1);
        });
      case Kind::kObject:
        lua_newtable(L_);
        return object([&](const std::string& key, size_t) {
          push_text(key);
          push();
          lua_rawset(L_, -3);
        });
    }
  }

 private:
  void push_text(const std::string& text) { lua_pushlstring(L_, text.data(), text.size()); }

  lua_State* L_;
};

// read_json(text, path, op) → the value of the text of a JSON file. op is the name of the caller.
int read_json(lua_State* L, State& state) {
  const std::string text = string_at(L, 1), path = check_string(L, state, 2, "read_json", "path"),
                    op = check_string(L, state, 3, "read_json", "op");
  access_files(state, op, [&] { TableReader(L, path, text).push(); });
  return 1;
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

// read_file(path[, op]) → its content, decompressed. op is the name of the caller.
int read_whole_file(lua_State* L, State& state) {
  const std::string path = check_string(L, state, 1, "read_file", "path");
  std::string text;
  if (lua_isnoneornil(L, 2))
    state.ctx.cancellable([&] { text = read_file(path); });
  else
    access_files(state, check_string(L, state, 2, "read_file", "op"), [&] { text = read_file(path); });
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
                      {"read_json", entry<read_json>},
                      {"can_read", entry<can_read_file>}});
}

}  // namespace pg::vm
