// Fields of tensors, comparisons, and in-place writes of whole tensors.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "tensor/parallel.h"
#include "tensor/rule.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/convert.h"
#include "vm/hints.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

void push_dims(lua_State* L, const Dims& dims) {
  lua_createtable(L, dims.size(), 0);
  for (int i = 0; i < dims.size(); ++i) {
    lua_pushnumber(L, double(dims[i]));
    lua_rawseti(L, -2, i + 1);
  }
}

// For a parameter without a value, pushes the planned shape or dtype (see stdlib/param.lua).
bool push_planned(lua_State* L, State& state, const char* field) {
  Box& box = check_box(L, state, 1, field, "x");
  if (box.get().defined() || !box.has_extra) return false;
  push_extra(L, box, 1);
  lua_getfield(L, -1, field);
  return !lua_isnil(L, -1);
}

int get_shape(lua_State* L, State& state) {
  if (!push_planned(L, state, "shape")) {
    const Value& v = check_value(L, state, 1, "shape", "x");
    note_shape(state, v);
    return push_dims(L, v.shape()), 1;
  }
  const int n = int(lua_objlen(L, -1));
  lua_createtable(L, n, 0);
  for (int i = 1; i <= n; ++i) lua_rawgeti(L, -2, i), lua_rawseti(L, -2, i);
  return 1;
}

int get_dtype(lua_State* L, State& state) {
  if (push_planned(L, state, "dtype")) return 1;
  const Value& v = check_value(L, state, 1, "dtype", "x");
  note(state, v, TypeGuard::kDType, 0, int64_t(v.dtype()));
  return lua_pushstring(L, name_of(v.dtype())), 1;
}

int get_device(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "device", "x");
  note_device(state, v);
  return lua_pushstring(L, name_of(v.device()).c_str()), 1;
}

int get_size(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "size", "x");
  if (lua_isnoneornil(L, 2)) return note_shape(state, v), push_dims(L, v.shape()), 1;
  const int64_t d = check_integer(L, state, 2, "size", "dim", "a dim, a whole number");
  if (d < 0) note_rank(state, v);
  if (v.rank() == 0) bad_argument("size", "dim", "no dim for a 0-dim tensor", std::to_string(d));
  const int index = dim_index("size", "dim", d, v.rank());
  note(state, v, TypeGuard::kDim, index, v.shape()[index]);
  lua_pushnumber(L, double(v.shape()[index]));
  return 1;
}

int get_length(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "#", "x");
  if (v.rank() == 0) fail("#", "a 0-dim tensor has no length");
  note(state, v, TypeGuard::kDim, 0, v.shape()[0]);
  lua_pushnumber(L, double(v.shape()[0]));
  return 1;
}

int get_dim(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "dim", "x");
  note_rank(state, v);
  return lua_pushnumber(L, v.rank()), 1;
}
int get_numel(lua_State* L, State& state) {
  const Value& v = check_value(L, state, 1, "numel", "x");
  note_shape(state, v);
  return lua_pushnumber(L, double(v.numel())), 1;
}

int get_stride(lua_State* L, State& state) {
  const Value& v = readable(L, state, 1, "stride", "x");  // throws in a trace: a graph accepts any layout
  if (lua_isnoneornil(L, 2)) return push_dims(L, v.array().strides), 1;
  const int64_t d = check_integer(L, state, 2, "stride", "dim", "a dim, a whole number");
  if (v.rank() == 0) bad_argument("stride", "dim", "no dim for a 0-dim tensor", std::to_string(d));
  lua_pushnumber(L, double(v.array().strides[dim_index("stride", "dim", d, v.rank())]));
  return 1;
}

int is_contiguous_tensor(lua_State* L, State& state) {
  return lua_pushboolean(L, readable(L, state, 1, "is_contiguous", "x").array().contiguous), 1;
}

// Whether f(begin, end) is true for all parts of [0, n), of at most kPart elements. Threads stop at the first other
// one.
constexpr int64_t kPart = 1024;
template <class F>
bool all_of_parts(int64_t n, const F& f) {
  std::atomic<bool> all{true};
  parallel_for(n, 16 * kPart, [&](int64_t begin, int64_t end) {
    for (; begin < end && all.load(std::memory_order_relaxed); begin += kPart)
      if (!f(begin, std::min(end, begin + kPart))) all = false;
  });
  return all;
}

// x:equal(y) → whether dtype, shape and elements are the same. NaN is not equal to itself.
int equal(lua_State* L, State& state) {
  const Value& a = readable(L, state, 1, "equal", "x");
  const Value& b = readable(L, state, 2, "equal", "y");
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return lua_pushboolean(L, false), 1;
  const Value x = host_copy(state, a), y = host_copy(state, b);
  const bool same = visit_dtype(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* p = static_cast<const T*>(x.array().data());
    const T* q = static_cast<const T*>(y.array().data());
    return all_of_parts(x.numel(), [=](int64_t begin, int64_t end) {
      bool alike = true;
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_integral_v<T>)
          alike &= p[i] == q[i];
        else
          alike &= double(p[i]) == double(q[i]);
      }
      return alike;
    });
  });
  lua_pushboolean(L, same);
  return 1;
}

double number_option(lua_State* L, State& state, int table, const char* op, const char* name, double fallback) {
  if (!lua_istable(L, table) || !option(L, table, name)) return fallback;
  if (lua_type(L, -1) != LUA_TNUMBER) bad_argument(op, name, "a number", describe(L, state, -1));
  const double v = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

Value expanded(State& state, const Value& v, const Dims& shape) {
  if (v.shape() == shape) return v;
  Value in[1] = {v};
  return apply(state.ctx, op_named<"expand">(), in, make_attrs(op_named<"expand">(), {{"shape", ints(shape)}}))[0];
}

// x:allclose(y, {rtol = 1e-5, atol = 1e-8, equal_nan = false}) → whether |x - y| <= atol + rtol * |y| everywhere.
// Shapes broadcast.
int allclose(lua_State* L, State& state) {
  lua_settop(L, 3);
  check_options(L, state, 3, "allclose", {"rtol", "atol", "equal_nan"});
  const double rtol = number_option(L, state, 3, "allclose", "rtol", 1e-5),
               atol = number_option(L, state, 3, "allclose", "atol", 1e-8);
  const bool equal_nan = flag_option(L, 3, "equal_nan");
  const Value& a = readable(L, state, 1, "allclose", "x");
  const Value b = lua_type(L, 2) == LUA_TNUMBER ? make_scalar(lua_tonumber(L, 2), DType::kFloat64)
                                                : readable(L, state, 2, "allclose", "y");
  Dims shape;
  if (!broadcast(a.shape(), b.shape(), &shape))
    bad_argument("allclose", "y", "a shape that broadcasts with " + to_string(a.shape()), to_string(b.shape()));
  ScopedFlag quiet(state.ctx.recording, false);
  const Value x = host_copy(state, expanded(state, a.detached(), shape)),
              y = host_copy(state, expanded(state, b.detached(), shape));
  const auto numbers = [](const Value& from, int64_t begin, int64_t count, double* to) {
    visit_dtype(from.dtype(), [&](auto tag) {
      const auto* const first = static_cast<const typename decltype(tag)::type*>(from.array().data()) + begin;
      for (int64_t i = 0; i < count; ++i) to[i] = double(first[i]);
    });
  };
  const bool close = all_of_parts(x.numel(), [&](int64_t begin, int64_t end) {
    double u[kPart], v[kPart];
    numbers(x, begin, end - begin, u);
    numbers(y, begin, end - begin, v);
    int close = 1;
    for (int64_t i = 0; i < end - begin; ++i) {
      const int both_nan = int(u[i] != u[i]) & int(v[i] != v[i]) & int(equal_nan);
      const int near = int(std::fabs(u[i]) <= std::numeric_limits<double>::max()) &
                       int(std::fabs(u[i] - v[i]) <= atol + rtol * std::fabs(v[i]));
      close &= int(u[i] == v[i]) | near | both_nan;
    }
    return close != 0;
  });
  lua_pushboolean(L, close);
  return 1;
}

Value converted(State& state, const Value& v, DType dtype, Device device) {
  if (v.dtype() == dtype && v.device() == device) return v;
  Value in[1] = {v};
  return apply(state.ctx, op_named<"to">(), in,
               make_attrs(op_named<"to">(), {{"dtype", dtype}, {"device", device}}))[0];
}

// Returns a tensor filled with a number in the shape of x; while tracing, in the shape that x has at each run.
Value filled_like(State& state, const Value& x, double number) {
  if (!state.trace) return make_filled(x.type(), number);
  const OpDef& op = op_named<"full_like">();
  const ScopedFlag quiet(state.ctx.recording, false);
  Value in[1] = {x};
  return apply(state.ctx, op, in, make_attrs(op, {{"value", number}}))[0];
}

// x:copy_(y) stores y in x, broadcast, converted and moved to the type of x.
int copy_to(lua_State* L, State& state) {
  state.update_modes();
  Box& box = check_box(L, state, 1, "copy_", "x");
  require_value(L, box, 1, "copy_", "x");
  check_in_place(L, state, box, "copy_");
  const Type type = box.get().type();
  Value value;
  if (lua_type(L, 2) == LUA_TNUMBER) {
    if (!is_float(type.dtype) && !holds(type.dtype, lua_tonumber(L, 2)))
      bad_argument("copy_", "y", fmt::format("a number that {} can hold", name_of(type.dtype)), describe(L, state, 2));
    value = filled_like(state, box.get(), lua_tonumber(L, 2));
  } else {
    const Value& source = check_value(L, state, 2, "copy_", "y");
    Dims joined;
    if (!broadcast(source.shape(), type.shape, &joined) || !(joined == type.shape))
      bad_argument("copy_", "y", "a shape that broadcasts to " + to_string(type.shape), to_string(source.shape()));
    for (const Value* v : std::initializer_list<const Value*>{&box.get(), &source}) {
      note(state, *v, TypeGuard::kDType, 0, int64_t(v->dtype()));
      note_device(state, *v);
    }
    value = converted(state, source, type.dtype, type.device);
    if (state.trace) {
      Value in[2] = {value, state.ctx.interpreter->tracer()->detach(state.ctx, box.get())};  // only its shape counts
      value = apply(state.ctx, op_named<"expand_as">(), in, {})[0];
    } else {
      value = expanded(state, value, type.shape);
      if (value.node() && value.node() == source.node()) {  // x is no second name of a leaf or of a recorded result
        Value in[1] = {value};
        value = state.ctx.recording ? apply(state.ctx, op_named<"clone">(), in, make_attrs(op_named<"clone">()))[0]
                                    : value.detached();
      }
    }
  }
  rebind_in_place(state, box, std::move(value), "copy_");
  lua_settop(L, 1);
  return 1;
}

int copy_in_place(lua_State* L, State& state) {
  return run_as(state, "copy_", [&] { return copy_to(L, state); });
}

int fill(lua_State* L, State& state, const char* op, double number) {
  state.update_modes();
  Box& box = check_box(L, state, 1, op, "x");
  require_value(L, box, 1, op, "x");
  check_in_place(L, state, box, op);
  const Type& type = box.get().type();
  if (!is_float(type.dtype) && !holds(type.dtype, number))
    bad_argument(op, "value", fmt::format("a number that {} can hold", name_of(type.dtype)), fmt::format("{}", number));
  rebind_in_place(state, box, filled_like(state, box.get(), number), op);
  lua_settop(L, 1);
  return 1;
}

int fill_in_place(lua_State* L, State& state) {
  if (lua_isboolean(L, 2)) return fill(L, state, "fill_", lua_toboolean(L, 2));
  if (lua_type(L, 2) != LUA_TNUMBER) bad_argument("fill_", "value", "a number", describe(L, state, 2));
  return fill(L, state, "fill_", lua_tonumber(L, 2));
}
int zero_in_place(lua_State* L, State& state) { return fill(L, state, "zero_", 0); }

int release(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "release", "x");
  set_value(box, Value());
  box.cell = {};
  box.released = true;
  return 0;
}

int is_tensor(lua_State* L, State& state) { return lua_pushboolean(L, to_box(L, state, 1) != nullptr), 1; }

// The operator ==: two tensors are equal if they are the same box.
int same_box(lua_State* L, State& state) {
  Box *a = to_box(L, state, 1), *b = to_box(L, state, 2);
  lua_pushboolean(L, a && b && (a == b || (a->cell && a->cell == b->cell)));
  return 1;
}

// Whether a key is the name of a field. Other strings, such as ":", are misspelled positions.
bool is_name(lua_State* L, int i) {
  if (lua_type(L, i) != LUA_TSTRING) return false;
  const char first = *lua_tostring(L, i);
  return first == '_' || (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
}

// The keys of the tables in the upvalues first to last.
std::vector<std::string> keys_of_upvalues(lua_State* L, int first, int last) {
  std::vector<std::string> names;
  for (int table = first; table <= last; ++table)
    for (lua_pushnil(L); lua_next(L, table_upvalue(L, table)); lua_pop(L, 1)) names.push_back(lua_tostring(L, -2));
  return names;
}

// " HINT" for a field that does not exist: from the table of hints, else the nearest of the names.
std::string field_hint(lua_State* L, const char* kind, const std::string& key, const std::vector<std::string>& names) {
  if (const std::string hint = hint_of(L, kind, key); !hint.empty()) return "; " + hint;
  const std::vector<std::string_view> known(names.begin(), names.end());
  return did_you_mean(key, known);
}

// Pushes what a table in an upvalue has under the name at stack index 2, or nil. A string is the module that adds it.
void push_entry(lua_State* L, int upvalue) {
  lua_pushvalue(L, 2);
  lua_rawget(L, table_upvalue(L, upvalue));
  if (lua_type(L, -1) != LUA_TSTRING) return;
  push_library_module(L, lua_tostring(L, -1));
  lua_pop(L, 2);
  lua_pushvalue(L, 2);
  lua_rawget(L, table_upvalue(L, upvalue));
}

// The __index of tensors. Upvalues 2, 3, 4: methods, C getters, Lua getters.
int read_field(lua_State* L, State& state) {
  if (!is_name(L, 2)) return run_as(state, "index", [&] { return index_read(L, state); });
  push_entry(L, 2);
  if (!lua_isnil(L, -1)) return 1;
  for (int getters = 3; getters <= 4; ++getters) {
    push_entry(L, getters);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
  }
  lua_pushvalue(L, 2);
  lua_gettable(L, table_upvalue(L, 2));  // makes the method of an op
  if (!lua_isnil(L, -1)) return 1;
  make_ops(L);
  const std::string key = lua_tostring(L, 2);
  std::string hint = self_is_tensor(L, state);
  if (!hint.empty() && key[0] == '_') throw Error(hint);  // a field of the library's own objects
  hint = hint.empty() ? field_hint(L, "tensor", key, keys_of_upvalues(L, 2, 4)) : "; " + hint;
  throw Error(fmt::format("a tensor has no field or method '{}'{}", key, hint));
}

int write_field(lua_State* L, State& state) {
  if (!is_name(L, 2)) return run_as(state, "index", [&] { return index_write(L, state); });
  for (int setters = 2; setters <= 3; ++setters) {
    push_entry(L, setters);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_call(L, 2, 0);
    return 0;
  }
  const std::string key = lua_tostring(L, 2);
  throw Error(fmt::format("a tensor has no field '{}' to set{}", key,
                          field_hint(L, "tensor_set", key, keys_of_upvalues(L, 2, 3))));
}

int get_name(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "name", "x");
  if (!box.has_extra) return lua_pushnil(L), 1;
  push_extra(L, box, 1);
  lua_getfield(L, -1, "name");
  return 1;
}

int set_name(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "name", "x");
  if (!lua_isnil(L, 2)) check_string(L, state, 2, "name", "name");
  push_extra(L, box, 1);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "name");
  return 0;
}

}  // namespace

void open_tensor(lua_State* L, State& state) {
  const int core = lua_gettop(L);
  open_conversions(L, state);
  register_functions(L, state, {{"is_tensor", entry<is_tensor>}});
  lua_getfield(L, core, "ops");
  register_functions(L, state, {{"equal", entry<equal>}, {"allclose", entry<allclose>}});
  lua_pop(L, 1);
  lua_getfield(L, core, "tensor_methods");
  register_functions(L, state,
                     {{"size", entry<get_size>},
                      {"dim", entry<get_dim>},
                      {"numel", entry<get_numel>},
                      {"stride", entry<get_stride>},
                      {"is_contiguous", entry<is_contiguous_tensor>},
                      {"equal", entry<equal>},
                      {"allclose", entry<allclose>},
                      {"copy_", entry<copy_in_place>},
                      {"fill_", entry<fill_in_place>},
                      {"zero_", entry<zero_in_place>},
                      {"release", entry<release>}});
  for (const char* name : {"attach_grad", "detach"}) {
    lua_getfield(L, core, name);
    lua_setfield(L, -2, name);
  }
  lua_pop(L, 1);
  lua_newtable(L);  // getters written in C
  register_functions(L, state,
                     {{"shape", entry<get_shape>},
                      {"dtype", entry<get_dtype>},
                      {"device", entry<get_device>},
                      {"name", entry<get_name>}});
  lua_getfield(L, core, "get_grad"), lua_setfield(L, -2, "grad");
  lua_getfield(L, core, "requires_grad"), lua_setfield(L, -2, "requires_grad");
  lua_setfield(L, core, "builtin_getters");
  lua_newtable(L);
  register_functions(L, state, {{"name", entry<set_name>}});
  lua_getfield(L, core, "set_grad"), lua_setfield(L, -2, "grad");
  lua_setfield(L, core, "builtin_setters");
  for (const char* name : {"tensor_getters", "tensor_setters"}) {
    lua_newtable(L);
    lua_setfield(L, core, name);
  }
  kTensorMetatable.push_table(L);
  lua_pushlightuserdata(L, &state);
  for (const char* name : {"tensor_methods", "builtin_getters", "tensor_getters"}) lua_getfield(L, core, name);
  lua_pushcclosure(L, entry<read_field>, 4);
  lua_setfield(L, -2, "__index");
  lua_pushlightuserdata(L, &state);
  for (const char* name : {"builtin_setters", "tensor_setters"}) lua_getfield(L, core, name);
  lua_pushcclosure(L, entry<write_field>, 3);
  lua_setfield(L, -2, "__newindex");
  register_functions(L, state, {{"__len", entry<get_length>}, {"__eq", entry<same_box>}});
  lua_pushstring(L, "perigee tensor");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

}  // namespace pg::vm
