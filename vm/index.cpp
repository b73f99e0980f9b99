// x[…] and x[…] = v. A key consists of one rectangular region (op `slice`), and masks and index lists that pick from
// it.
#include <algorithm>
#include <cmath>

#include "tensor/rule.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/picker.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

// Reads up to this size return copies, so that a later write to the tensor does not have to copy it.
constexpr Bytes kCopyBytes = Bytes(4096);

// The selection of a key from an array of a given shape.
struct Key {
  Dims start, length, step, drop;  // one per dim, counted from 0
  Dims free_start, free_length;    // the same for any size: a negative start counts from the end, length -1 ends there
  std::vector<Picker> pickers;     // their dims are those of the array
};

class KeyReader {
 public:
  KeyReader(lua_State* L, State& state, const Value& x) : L_(L), state_(state), x_(x) {}

  Key read(int i) {
    if (lua_istable(L_, i))
      read_list(i);
    else
      read_one(i);
    while (dim() < x_.rank()) take_all();
    return std::move(key_);
  }

 private:
  int dim() const { return key_.start.size(); }

  void add(int64_t start, int64_t length, int64_t step, bool drop, int64_t free_start, int64_t free_length) {
    key_.free_start.push_back(free_start);
    key_.free_length.push_back(free_length);
    key_.start.push_back(start);
    key_.length.push_back(length);
    key_.step.push_back(step);
    key_.drop.push_back(drop);
  }
  void take_all() { add(0, x_.shape()[dim()], 1, false, 0, -1); }

  [[noreturn]] void bad(const std::string& expected, const std::string& got) {
    bad_argument("index", fmt::format("dim {}", dim() + 1).c_str(), expected, got);
  }

  // Returns the number of dims that a key element covers.
  int width(int i) {
    if (Box* box = to_box(L_, state_, i))
      if (box->get().is_array() && box->get().dtype() == DType::kBool) return box->get().rank();
    return 1;
  }

  bool is_dots(int i) { return lua_type(L_, i) == LUA_TSTRING && std::string_view(lua_tostring(L_, i)) == "..."; }

  void read_list(int i) {
    const int n = int(lua_objlen(L_, i));
    int counted = 0, taken = 0, dots = 0;
    for (lua_pushnil(L_); lua_next(L_, i); lua_pop(L_, 1)) ++counted;
    if (counted != n)
      fail("index",
           "bad argument 'key' (expected an array of positions and ranges, got a table with holes or other keys)");
    need_stack(L_, n + 8, "index");
    const int first = lua_gettop(L_) + 1;
    for (int k = 1; k <= n; ++k) lua_rawgeti(L_, i, k);
    for (int k = 0; k < n; ++k) is_dots(first + k) ? ++dots : taken += width(first + k);
    if (dots > 1) fail("index", "bad argument 'key' (expected \"...\" once, got it {} times)", dots);
    if (taken > x_.rank())
      fail("index", "bad argument 'key' (expected at most {} positions for a tensor of shape {}, got {})", x_.rank(),
           to_string(x_.shape()), taken);
    for (int k = 0; k < n; ++k) {
      if (!is_dots(first + k)) {
        read_one(first + k);
        continue;
      }
      for (int fill = x_.rank() - taken; fill > 0; --fill) take_all();
    }
    lua_settop(L_, first - 1);
  }

  void read_one(int i) {
    if (to_box(L_, state_, i)) return read_picker(i);
    if (is_dots(i)) return;
    if (dim() >= x_.rank()) fail("index", "bad argument 'key' (expected at most {} positions, got more)", x_.rank());
    if (lua_istable(L_, i)) return read_range(i);
    const int64_t at = position(i);
    const bool from_end = lua_tonumber(L_, i) < 0;
    add(at, 1, 1, true, from_end ? at - x_.shape()[dim()] : at, 1);
  }

  // Which positions a place in this dim may have; `what` is "index" or "range".
  std::string positions(const char* what) {
    const int64_t n = x_.shape()[dim()];
    const bool range = *what == 'r';
    if (n == 0) return range ? "a range from 1 to 0 in a dim of size 0" : "no index in a dim of size 0";
    return fmt::format("{} from 1 to {} or -{} to -1 in a dim of size {}", range ? "a range" : "an index", n, n, n);
  }

  // Returns the whole number at stack index i, a position or a step.
  int64_t whole(int i, const char* what) {
    const double v = lua_type(L_, i) == LUA_TNUMBER ? lua_tonumber(L_, i) : NAN;
    if (v == std::floor(v) && std::fabs(v) <= 0x1p53) return int64_t(v);
    const bool step = *what == 's';
    const std::string expected = step ? "a step of at least 1" : positions(what);
    if (lua_type(L_, i) == LUA_TSTRING && !step)
      bad(expected, describe(L_, state_, i) + "; {} takes all of a dim, as in x[{{}, 1}]");
    bad(expected, lua_type(L_, i) == LUA_TNUMBER ? describe(L_, state_, i) : describe_argument(L_, state_, i));
  }

  int64_t position(int i) {
    const int64_t n = x_.shape()[dim()], v = whole(i, "index");
    const int64_t at = v > 0 ? v - 1 : n + v;
    if (v == 0 || at < 0 || at >= n)
      bad(positions("index"), fmt::format("{}{}", v, v == 0 ? "; positions count from 1" : ""));
    return at;
  }

  // Reads {} (all), {a, b} or {a, b, step} (both ends included; {a, a - 1} is empty).
  void read_range(int i) {
    const int count = int(lua_objlen(L_, i));
    const int64_t n = x_.shape()[dim()];
    if (count == 0) return take_all();
    if (count > 3 || count == 1)
      bad("a range {first, last} or {first, last, step}", fmt::format("a table of {}", count));
    for (int k = 1; k <= count; ++k) lua_rawgeti(L_, i, k);
    const int at = lua_gettop(L_) - count;
    const int64_t a = whole(at + 1, "range"), b = whole(at + 2, "range");
    const int64_t step = count == 3 ? whole(at + 3, "step") : 1;
    lua_pop(L_, count);
    const int64_t first = a < 0 ? n + a + 1 : a, last = b < 0 ? n + b + 1 : b;
    const std::string got = count == 3 ? fmt::format("{{{}, {}, {}}}", a, b, step) : fmt::format("{{{}, {}}}", a, b);
    if (step < 1) bad("a range with a step of at least 1", got);
    if (first < 1 || first > n + 1 || last > n || last < first - 1)
      bad(fmt::format("a range from 1 to {} in a dim of size {}", n, n), got);
    const int64_t length = (last - first + step) / step;
    // Whether the region is valid for any size for which start, length and step fit, because b is its last element.
    const bool open = b == -1 || (a > 0 && b > 0 && (step == 1 || (b - a) % step == 0));
    if (state_.trace && !open) state_.trace->note(x_, TypeGuard::kDim, dim(), n);
    add(first - 1, length, step, false, b == -1 && a < 0 ? a : first - 1, b == -1 ? -1 : length);
  }

  void read_picker(int i) {
    const Value& picker = check_value(L_, state_, i, "index", "key");
    const int first = dim();
    if (picker.dtype() == DType::kBool) {
      for (int d = 0; d < picker.rank(); ++d) {
        if (dim() >= x_.rank() || x_.shape()[dim()] != picker.shape()[d])
          fail("index", "bad argument 'key' (expected a mask that matches shape {} from dim {} on, got a mask of {})",
               to_string(x_.shape()), first + 1, to_string(picker.shape()));
        take_all();
      }
    } else {
      if (picker.dtype() != DType::kInt64 && picker.dtype() != DType::kInt32)
        bad("an index list of int64 or a mask of bool", to_string(picker.type()) + "; x:long() converts");
      if (dim() >= x_.rank()) fail("index", "bad argument 'key' (expected at most {} positions, got more)", x_.rank());
      take_all();
    }
    key_.pickers.push_back({picker, first});
  }

  lua_State* L_;
  State& state_;
  const Value& x_;
  Key key_;
};

Attrs region_attrs(const State& state, const OpDef& op, const Key& key) {
  const bool open = state.trace != nullptr;
  return make_attrs(op, {{"start", ints(open ? key.free_start : key.start)},
                         {"length", ints(open ? key.free_length : key.length)},
                         {"step", ints(key.step)},
                         {"drop", ints(key.drop)}});
}

// Whether the key selects the whole tensor; while tracing, whether it does so for any size.
bool takes_everything(const State& state, const Key& key, const Value& x) {
  for (int d = 0; d < x.rank(); ++d) {
    if (key.drop[d]) return false;
    if (state.trace ? key.free_start[d] != 0 || key.free_length[d] != -1 || key.step[d] != 1
                    : key.length[d] != x.shape()[d])
      return false;
  }
  return true;
}

// apart: the result has a place of its own on the tape, even if it is the whole tensor.
Value read_region(State& state, const Value& x, const Key& key, bool apart = false) {
  if (!(apart && x.has_node()) && takes_everything(state, key, x)) return x;
  const OpDef& op = op_named<"slice">();
  Value in[1] = {x};
  return apply(state.ctx, op, in, region_attrs(state, op, key))[0];
}

// The pickers of the key with the dims of the selected piece.
std::vector<Picker> pickers_of(const Key& key) {
  std::vector<Picker> pickers = key.pickers;
  for (Picker& p : pickers)
    for (int d = p.dim - 1; d >= 0; --d) p.dim -= key.drop[d] != 0;
  return pickers;
}

// Returns a copy with the history of the value.
Value copy_of(State& state, const Value& v) {
  ScopedFlag quiet(state.ctx.recording, false);
  Value in[1] = {v.detached()};
  Value copy = apply(state.ctx, op_named<"clone">(), in, make_attrs(op_named<"clone">()))[0];
  copy.link(v.node(), v.node_output());
  return copy;
}

// Copies a small view and keeps its history.
Value settle(State& state, Value v, const Value& x) {
  if (!v.is_array() || !v.array().buffer || v.array().buffer.get() != x.array().buffer.get()) return v;
  if (bytes_of(v.type()) > kCopyBytes || !v.device().is_cpu()) return v;
  return copy_of(state, v);
}

Value value_to_write(lua_State* L, State& state, const Value& x) {
  note(state, x, TypeGuard::kDType, 0, int64_t(x.dtype()));  // the checks below depend on it
  if (lua_type(L, 3) == LUA_TNUMBER) {
    const double number = lua_tonumber(L, 3);
    if (!is_float(x.dtype()) && !holds(x.dtype(), number))
      bad_argument("index", "value", fmt::format("a number that {} can hold", name_of(x.dtype())),
                   describe(L, state, 3));
    return make_scalar(number, x.dtype(), x.device());
  }
  if (lua_isboolean(L, 3)) return make_scalar(lua_toboolean(L, 3), x.dtype(), x.device());
  if (!to_box(L, state, 3))
    bad_argument("index", "value", fmt::format("a tensor or a {}", x.dtype() == DType::kBool ? "boolean" : "number"),
                 describe_instead_of_tensor(L, state, 3, "index"));
  const Value& v = check_value(L, state, 3, "index", "value");
  note(state, v, TypeGuard::kDType, 0, int64_t(v.dtype()));
  if (v.dtype() == x.dtype()) return v;
  if (!(is_float(v.dtype()) && is_float(x.dtype())) && promote(v.dtype(), x.dtype()) != x.dtype())
    bad_argument("index", "value", fmt::format("a tensor that {} can hold", name_of(x.dtype())), to_string(v.type()));
  return call<"to">(Var(state.ctx, v), {{"dtype", x.dtype()}}).value();
}

// Returns in[0] with the region `key` replaced by `value`. in[0] releases its buffer only after the last step that can
// fail.
Value assigned(State& state, std::span<Value, 2> in, const Key& key, const Value& value) {
  const OpDef& assign = op_named<"slice_assign">();
  Context& ctx = state.ctx;
  in[1] = value;
  if (!key.pickers.empty()) {
    const Value piece = read_region(state, in[0], key);
    const Var changed = assign_picked(state, Var(ctx, piece), pickers_of(key), Var(ctx, value));
    if (takes_everything(state, key, in[0])) return changed.value();
    in[1] = changed.value();
  }
  return apply(ctx, assign, in, region_attrs(state, assign, key))[0];
}

}  // namespace

// The views that index reads returned, by buffer. A write copies them if they are smaller than the tensor.
void note_view(lua_State* L, State& state, const Value& whole) {
  Box& box = *static_cast<Box*>(lua_touserdata(L, -1));
  if (!whole.array().buffer || box.value.array().buffer.get() != whole.array().buffer.get()) return;
  const Buffer* const buffer = whole.array().buffer.get();
  if (state.free_view_slots.empty()) {
    state.view_slots.push_back({});
    if (state.free_view_slots.capacity() < state.view_slots.size())
      state.free_view_slots.reserve(2 * state.view_slots.size() + 16);
    state.free_view_slots.push_back(uint32_t(state.view_slots.size()));
  }
  const uint32_t slot = state.free_view_slots.back();
  kViews.push_table(L);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, int(slot));
  lua_pop(L, 1);
  std::vector<uint32_t>& views = state.views[buffer];
  views.push_back(slot);
  state.view_slots[slot - 1] = {buffer, views.size() - 1};
  state.free_view_slots.pop_back();
  box.view = slot;  // from here on its finalizer calls forget_view
}

void forget_view(Box& box) {
  State& state = *box.state;
  if (!box.view || state.closed) return;
  const ViewSlot slot = state.view_slots[box.view - 1];
  std::vector<uint32_t>& views = state.views.find(slot.of)->second;
  views[slot.place] = views.back();  // the order does not matter, so each removal takes constant time
  state.view_slots[views[slot.place] - 1].place = slot.place;
  views.pop_back();
  if (views.empty()) state.views.erase(slot.of);
  state.free_view_slots.push_back(std::exchange(box.view, 0));
}

void detach_views(lua_State* L, State& state, const Value& whole) {
  if (!whole.is_array() || !whole.array().buffer || state.views.empty()) return;
  const auto at = state.views.find(whole.array().buffer.get());
  if (at == state.views.end()) return;
  kViews.push_table(L);
  std::vector<Box*> boxes;  // the live boxes; no collection runs from here on
  Bytes bytes;
  for (uint32_t slot : at->second) {
    lua_rawgeti(L, -1, int(slot));
    Box* box = to_box(L, state, -1);
    lua_pop(L, 1);
    if (!box || box->view != slot) continue;
    boxes.push_back(box);
    bytes += box->get().is_array() ? bytes_of(box->get().type()) : Bytes();
  }
  lua_pop(L, 1);
  if (bytes.count() >= whole.array().buffer->bytes) return;
  for (Box* box : boxes) {
    Value& v = box->get();
    forget_view(*box);
    if (!v.is_array() || v.array().buffer.get() != whole.array().buffer.get()) continue;
    v = copy_of(state, v);
  }
}

// A 0-dim tensor has no positions; only a mask selects from it.
bool selects_from_scalar(lua_State* L, State& state, int key) {
  if (lua_istable(L, key)) return true;
  Box* box = to_box(L, state, key);
  return box && box->get().defined() && box->get().dtype() == DType::kBool;
}

int index_read(lua_State* L, State& state) {
  state.update_modes();
  lua_settop(L, 2);
  const Value x = check_value(L, state, 1, "index", "x");
  if (x.rank() == 0 && !selects_from_scalar(L, state, 2))
    fail("index", "a 0-dim tensor has no elements to select; x:item() reads its value");
  if (state.trace && state.trace->sees(x)) state.trace->note(x, TypeGuard::kRank, 0, x.rank());
  const Key key = KeyReader(L, state, x).read(2);
  Value out = read_region(state, x, key, key.pickers.empty());
  if (!key.pickers.empty()) out = read_picked(state, Var(state.ctx, out), pickers_of(key)).value();
  out = settle(state, std::move(out), x);
  push_box(L, state, std::move(out)).read_only = true;
  note_view(L, state, x);
  return 1;
}

int index_write(lua_State* L, State& state) {
  state.update_modes();
  lua_settop(L, 3);
  Box& box = check_box(L, state, 1, "index", "x");
  require_value(L, box, 1, "index", "x");
  check_in_place(L, state, box, "index");
  if (box.get().rank() == 0 && !selects_from_scalar(L, state, 2))
    fail("index", "a 0-dim tensor has no elements to assign; use x:fill_(v)");
  if (state.trace && state.trace->sees(box.get())) state.trace->note(box.get(), TypeGuard::kRank, 0, box.get().rank());
  const Key key = KeyReader(L, state, box.get()).read(2);
  const Value value = value_to_write(L, state, box.get());
  detach_views(L, state, box.get());
  Value in[2];
  Lent lent(box, in[0], "index");
  Value result = assigned(state, in, key, value);
  lent.finish(std::move(result));
  return 0;
}

void open_index(lua_State*, State&) {}

}  // namespace pg::vm
