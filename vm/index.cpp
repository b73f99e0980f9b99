// x[…] and x[…] = v.
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {

int index_read(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "index", "x");
  if (lua_type(L, 2) != LUA_TNUMBER) bad_argument("index", "key", "a whole number", describe(L, state, 2));
  if (v.rank() == 0) fail("index", "a 0-dim tensor has no elements to select");
  const int64_t n = v.shape()[0], i = check_integer(L, state, 2, "index", "key");
  const int64_t at = i > 0 ? i - 1 : n + i;
  if (i == 0 || at < 0 || at >= n) bad_argument("index", "key", fmt::format("1 to {} or -{} to -1 in dim 1", n, n), std::to_string(i));
  Ref<Array> part = Array::make(Type{v.dtype(), v.device(), Dims(std::span<const int64_t>(v.shape().begin() + 1, v.shape().end()))});
  part->strides = Dims(std::span<const int64_t>(v.array().strides.begin() + 1, v.array().strides.end()));
  part->offset = v.array().offset + at * v.array().strides[0];
  part->buffer = v.array().buffer;
  part->contiguous = is_contiguous(part->type.shape, part->strides);
  push_box(L, state, Value(part)).read_only = true;
  return 1;
}

int index_write(lua_State* L, State& state) {
  bad_argument("index", "key", "a whole number", describe(L, state, 2));
}

void open_index(lua_State*, State&) {}

}  // namespace pg::vm
