// tostring(x).
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {
namespace {

int tensor_to_string(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "tostring", "x");
  const Value& v = box.get();
  std::string text;
  if (v.defined() && v.array().contiguous)
    for (int64_t i = 0; i < std::min<int64_t>(v.numel(), 20); ++i)
      text += fmt::format("{} ", load_number(v.dtype(), static_cast<char*>(v.array().data()) + i * size_of(v.dtype())));
  lua_pushstring(L, fmt::format("{}\n[{}]", text, v.defined() ? to_string(v.type()) : "no value").c_str());
  return 1;
}

}  // namespace

void open_print(lua_State* L, State& state) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, state.tensor_metatable_ref);
  register_functions(L, state, {{"__tostring", entry<tensor_to_string>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm
