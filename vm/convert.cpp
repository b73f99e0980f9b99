#include "vm/convert.h"

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "vm/args.h"
#include "vm/trace.h"

namespace pg::vm {

Value host_copy(State& state, const Value& v) {
  return to_contiguous(state.ctx, to_device(state.ctx, v.detached(), Device{}));
}

const Value& readable(lua_State* L, State& state, int i, const char* op, const char* name) {
  const Value& v = check_value(L, state, i, op, name);
  if (v.is_array() && !v.array().buffer) throw NoValue();
  return v;
}

namespace {

// Polls once for some elements of Lua tables, which take some tens of microseconds. What runs meanwhile may change the
// tables.
class ElementPoll {
 public:
  void operator()(Context& ctx) {
    if (done_++ % 1024 == 0) ctx.poll();
  }

 private:
  int64_t done_ = 0;
};

// The function of the script that reads a tensor, and the name of its argument.
struct Caller {
  const char* op;
  const char* argument;
};

// Reads nested tables of numbers or booleans into one array.
class TableReader {
 public:
  TableReader(lua_State* L, State& state, Caller caller) : L_(L), state_(state), caller_(caller) {}

  Value read(int i, std::optional<DType> dtype) {
    need_stack(L_, 2 * kMaxRank + 4, caller_.op);
    measure(i);
    dtype_ = dtype.value_or(boolean_ ? DType::kBool : DType::kFloat32);
    checked_numel(caller_.op, shape_);
    Value out = make_array(Type{dtype_, {}, shape_});
    at_ = static_cast<char*>(out.array().data());
    fill(i, 0);
    return out;
  }

 private:
  void measure(int i) {
    const int top = lua_gettop(L_);
    lua_pushvalue(L_, i);
    while (lua_istable(L_, -1)) {
      if (shape_.size() == kMaxRank)
        bad_argument(caller_.op, caller_.argument, fmt::format("at most {} nested tables", kMaxRank), "more");
      const int64_t n = int64_t(lua_objlen(L_, -1));
      shape_.push_back(n);
      if (n == 0) break;
      lua_rawgeti(L_, -1, 1);
    }
    boolean_ = lua_isboolean(L_, -1);
    lua_settop(L_, top);
  }

  // For pg.tensor{1, 2, dtype = "int64"}.
  void refuse_option(const std::string& key) {
    if (key == "dtype" || key == "device")
      bad_argument(caller_.op, caller_.argument, "an array",
                   fmt::format("the option '{0}'; write pg.{1}(data, {{{0} = …}})", key, caller_.op));
  }

  void fill(int i, int depth) {
    if (depth == shape_.size()) return element(i);
    const int n = int(lua_istable(L_, i) ? lua_objlen(L_, i) : 0);
    if (!lua_istable(L_, i))
      bad("a table of " + std::to_string(shape_[depth]) + " at depth " + std::to_string(depth + 1), i);
    if (n != shape_[depth])
      bad_argument(caller_.op, caller_.argument,
                   fmt::format("{} elements at depth {} like the first", shape_[depth], depth + 1), std::to_string(n));
    int counted = 0;
    for (lua_pushnil(L_); lua_next(L_, i); lua_pop(L_, 1)) {
      ++counted;
      if (depth == 0 && lua_type(L_, -2) == LUA_TSTRING) refuse_option(lua_tostring(L_, -2));
    }
    if (counted != n)
      bad_argument(caller_.op, caller_.argument, "an array without holes", "a table with holes or other keys");
    for (int k = 1; k <= n; ++k) {
      poll_(state_.ctx);
      lua_rawgeti(L_, i, k);
      fill(lua_gettop(L_), depth + 1);
      lua_pop(L_, 1);
    }
  }

  // The value of an int64 cdata, as item and totable return it.
  std::optional<int64_t> wide_integer(int i) {
    if (std::strcmp(luaL_typename(L_, i), "cdata") || !luaL_getmetafield(L_, i, "__tostring")) return {};
    lua_pushvalue(L_, i);
    const int status = lua_pcall(L_, 1, 1, 0);
    if (status == LUA_ERRMEM) throw std::bad_alloc();
    const char* text = status || lua_type(L_, -1) != LUA_TSTRING ? "" : lua_tostring(L_, -1);
    char* end = nullptr;
    const int64_t v = std::strtoll(text, &end, 10);
    const bool whole = end != text && !std::strcmp(end, "LL");
    lua_pop(L_, 1);
    return whole ? std::optional(v) : std::nullopt;
  }

  void element(int i) {
    double v;
    if (const std::optional<int64_t> wide = boolean_ ? std::nullopt : wide_integer(i)) {
      if (dtype_ == DType::kInt64)
        std::memcpy(at_, &*wide, sizeof *wide);
      else
        store(double(*wide), i);
      at_ += size_of(dtype_);
      return;
    }
    if (lua_type(L_, i) != (boolean_ ? LUA_TBOOLEAN : LUA_TNUMBER) &&
        (lua_isboolean(L_, i) || lua_type(L_, i) == LUA_TNUMBER))
      bad(boolean_ ? "only booleans, like the first element" : "only numbers, like the first element", i);
    if (lua_type(L_, i) == LUA_TNUMBER)
      v = lua_tonumber(L_, i);
    else if (lua_isboolean(L_, i))
      v = lua_toboolean(L_, i);
    else
      bad_argument(
          caller_.op, caller_.argument,
          shape_.empty() ? "a number, a boolean or a nested table of them" : "a number or a boolean",
          describe(L_, state_, i) + (to_box(L_, state_, i) ? "; pg.stack{x, y} makes a tensor of tensors" : ""));
    store(v, i);
    at_ += size_of(dtype_);
  }

  void store(double v, int i) {
    if (!holds(dtype_, v)) bad(fmt::format("a number that {} can hold", name_of(dtype_)), i);
    store_number(dtype_, at_, v);
  }

  [[noreturn]] void bad(const std::string& expected, int i) {
    bad_argument(caller_.op, caller_.argument, expected, describe(L_, state_, i));
  }

  lua_State* L_;
  State& state_;
  Caller caller_;
  Dims shape_;
  DType dtype_ = DType::kFloat32;
  bool boolean_ = false;
  char* at_ = nullptr;
  ElementPoll poll_;
};

struct Placement {
  std::optional<DType> dtype;
  Device device;
};

Placement read_placement(lua_State* L, State& state, int i, const char* op) {
  Placement p{{}, state.default_device};
  check_options(L, state, i, op, {"dtype", "device"});
  if (!lua_istable(L, i)) return p;
  if (option(L, i, "dtype")) p.dtype = check_dtype(L, state, lua_gettop(L), op, "dtype"), lua_pop(L, 1);
  if (option(L, i, "device")) p.device = check_device(L, state, lua_gettop(L), op, "device"), lua_pop(L, 1);
  return p;
}

void push_new_tensor(lua_State* L, State& state, Caller caller) {
  const auto [op, argument] = caller;
  const int given = lua_gettop(L);
  if (given > 1 && (lua_type(L, 2) == LUA_TNUMBER || lua_isboolean(L, 2)))
    bad_argument(op, argument, "one table of all elements",
                 fmt::format("{} arguments; write pg.{}{{1, 2, 3}}", given, op));
  if (lua_type(L, 2) == LUA_TSTRING)
    bad_argument(op, "options", "a table of options",
                 fmt::format("\"{0}\"; write {{{1} = \"{0}\"}}", lua_tostring(L, 2),
                             dtype_from_name(lua_tostring(L, 2)) ? "dtype" : "device"));
  lua_settop(L, 2);
  const Placement p = read_placement(L, state, 2, op);
  Value out;
  if (to_box(L, state, 1)) {
    const Value& source = check_value(L, state, 1, op, argument);
    Value in[1] = {source.detached()};
    out = apply(state.ctx, op_named<"to">(), in,
                make_attrs(op_named<"to">(), {{"dtype", p.dtype.value_or(source.dtype())}, {"device", p.device}}))[0];
    if (out.array_ref() == source.array_ref()) out = to_contiguous(state.ctx, source.detached());
  } else {
    out = to_device(state.ctx, TableReader(L, state, caller).read(1, p.dtype), p.device);
  }
  push_box(L, state, std::move(out));
}

// tensor(data, {dtype=, device=}) → a tensor. If data is a tensor, it returns a copy without history.
int new_tensor(lua_State* L, State& state) {
  push_new_tensor(L, state, {"tensor", "data"});
  return 1;
}

// read_tensor(op, argument, data, options) → the same for a function of this name, whose errors name it.
int read_tensor(lua_State* L, State& state) {
  const std::string op = check_string(L, state, 1, "read_tensor", "op"),
                    argument = check_string(L, state, 2, "read_tensor", "argument");
  lua_remove(L, 1);
  lua_remove(L, 1);
  push_new_tensor(L, state, {op.c_str(), argument.c_str()});
  return 1;
}

// Pushes an int64 as cdata.
void push_cdata(lua_State* L, int64_t v) {
  const std::string code = v == INT64_MIN ? "return -9223372036854775807LL - 1LL" : fmt::format("return {}LL", v);
  int status = luaL_loadstring(L, code.c_str());
  if (!status) status = lua_pcall(L, 0, 1, 0);
  if (status == LUA_ERRMEM) throw std::bad_alloc();
  if (status) throw Error(fmt::format("item: the int64 {} does not fit a number, and FFI is off", v));
}

// Pushes one element: a number, a boolean, or an int64 cdata if beyond 2^53.
template <class T>
void push_element(lua_State* L, T v) {
  if constexpr (std::is_same_v<T, bool>) return lua_pushboolean(L, v);
  if constexpr (std::is_same_v<T, int64_t>)
    if (v > (int64_t(1) << 53) || v < -(int64_t(1) << 53)) return push_cdata(L, v);
  lua_pushnumber(L, double(v));
}
void push_element(lua_State* L, DType dtype, const void* at) {
  visit_dtype(dtype, [&](auto tag) { push_element(L, *static_cast<const typename decltype(tag)::type*>(at)); });
}

int item_of(lua_State* L, State& state) {
  const Value& v = readable(L, state, 1, "item", "x");
  if (v.numel() != 1)
    bad_argument("item", "x", "a tensor of one element", to_string(v.type()) + "; x:totable() reads all elements");
  const Value host = host_copy(state, v);
  push_element(L, host.dtype(), host.array().data());
  return 1;
}

// Sets the elements of the list on the stack to those at `at`.
void set_elements(lua_State* L, Context& ctx, ElementPoll& poll, DType dtype, const char* at, int64_t n) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = reinterpret_cast<const T*>(at);
    for (int64_t i = 0; i < n; ++i) {
      poll(ctx);
      push_element(L, from[i]);
      lua_rawseti(L, -2, int(i + 1));
    }
  });
}

const char* push_nested(lua_State* L, Context& ctx, ElementPoll& poll, const Value& v, int dim, const char* at) {
  if (dim == v.rank()) {
    push_element(L, v.dtype(), at);
    return at + size_of(v.dtype());
  }
  const int64_t n = v.shape()[dim];
  lua_createtable(L, int(std::min<int64_t>(n, 1 << 26)), 0);
  if (dim == v.rank() - 1) {
    set_elements(L, ctx, poll, v.dtype(), at, n);
    return at + n * size_of(v.dtype());
  }
  for (int64_t i = 1; i <= n; ++i) {
    poll(ctx);
    at = push_nested(L, ctx, poll, v, dim + 1, at);
    lua_rawseti(L, -2, int(i));
  }
  return at;
}

// The number of tables and elements of the nested table. Empty inner tables count too.
double entries_of(const Dims& shape) {
  double all = 0, level = 1;
  for (int64_t n : shape) all += level *= double(n);
  return all;
}

int totable(lua_State* L, State& state) {
  const Value& v = readable(L, state, 1, "totable", "x");
  if (entries_of(v.shape()) > (v.numel() ? 1e9 : 1e6))
    bad_argument("totable", "x", "a tensor that fits a Lua table", to_string(v.type()));
  const Value host = host_copy(state, v);
  need_stack(L, host.rank() + 4, "totable");
  ElementPoll poll;
  push_nested(L, state.ctx, poll, host, 0, static_cast<const char*>(host.array().data()));
  return 1;
}

int to_bytes(lua_State* L, State& state) {
  state.ctx.poll();
  const Value host = host_copy(state, readable(L, state, 1, "to_bytes", "x"));
  lua_pushlstring(L, static_cast<const char*>(host.array().data()), bytes_of(host.type()).count());
  return 1;
}

Dims check_shape(lua_State* L, State& state, int i, const char* op) {
  Dims shape;
  if (!lua_istable(L, i)) bad_argument(op, "shape", "a table of whole numbers", describe(L, state, i));
  const int n = int(lua_objlen(L, i));
  for (int k = 1; k <= n; ++k) {
    lua_rawgeti(L, i, k);
    shape.push_back(check_integer(L, state, lua_gettop(L), op, "shape", "a table of whole numbers"));
    lua_pop(L, 1);
  }
  checked_numel(op, shape);
  return shape;
}

// from_bytes(str, dtype, shape)
int from_bytes(lua_State* L, State& state) {
  state.ctx.poll();
  const std::string bytes = check_string(L, state, 1, "from_bytes", "bytes");
  const DType dtype = check_dtype(L, state, 2, "from_bytes", "dtype");
  Dims shape;
  if (lua_isnoneornil(L, 3))
    shape.push_back(int64_t(bytes.size()) / size_of(dtype));
  else
    shape = check_shape(L, state, 3, "from_bytes");
  const size_t needed = bytes_of(Type{dtype, {}, shape}).count();
  if (needed != bytes.size())
    bad_argument("from_bytes", "bytes", fmt::format("{} bytes for {} {}", needed, name_of(dtype), to_string(shape)),
                 std::to_string(bytes.size()));
  Value out = make_array(Type{dtype, {}, shape});
  std::memcpy(out.array().data(), bytes.data(), bytes.size());
  if (dtype == DType::kBool)
    for (int64_t i = 0; i < out.numel(); ++i)
      if (static_cast<uint8_t*>(out.array().data())[i] > 1)
        bad_argument("from_bytes", "bytes", "bytes 0 and 1 for bool",
                     fmt::format("{} at place {}", uint8_t(bytes[size_t(i)]), i + 1));
  push_box(L, state, std::move(out));
  return 1;
}

}  // namespace

// Adds to core.ops and core.tensor_methods; core is on top of the stack.
void open_conversions(lua_State* L, State& state) {
  lua_getfield(L, -1, "ops");
  register_functions(L, state, {{"tensor", entry<new_tensor>}, {"from_bytes", entry<from_bytes>}});
  lua_pop(L, 1);
  register_functions(L, state, {{"read_tensor", entry<read_tensor>}});
  lua_getfield(L, -1, "tensor_methods");
  register_functions(L, state, {{"item", entry<item_of>}, {"totable", entry<totable>}, {"to_bytes", entry<to_bytes>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm
