// Reads the arguments of a call of an op.
#include "vm/args.h"

#include <algorithm>
#include <cstring>

#include "tensor/attr_check.h"
#include "tensor/error.h"
#include "vm/hints.h"

namespace pg::vm {
namespace {

bool must_be_given(const AttrDef& def) {
  return def.fallback.index() == 0 && !def.optional && def.kind != AttrKind::kRandom;
}

bool is_plain_table(lua_State* L, int i) { return lua_type(L, i) == LUA_TTABLE; }

bool has_string_keys(lua_State* L, int i) {
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) == LUA_TSTRING) {
      lua_pop(L, 1);
      return true;
    }
  }
  return false;
}

// Fills a Call from arguments by position and options by name.
class Reader {
 public:
  Reader(lua_State* L, State& state, const OpBinding& binding, Call& call)
      : L_(L), state_(state), b_(binding), op_(*binding.op), call_(call) {}

  void read(int first) {
    int last = lua_gettop(L_);
    start();
    const bool options = last >= first && takes_options(first, last);
    int at = first;
    for (size_t s = 0; s < b_.slots.size() && at <= last - int(options); ++s)
      at = read_slot(b_.slots[s], at, last - int(options));
    if (at <= last - int(options)) {
      std::string got = describe(L_, state_, at);
      for (int k = first; k < at; ++k)
        if (lua_isnil(L_, k)) got += fmt::format("; argument {} is nil, and lists count from 1", k - first + 1);
      bad_argument(op_.name, fmt::format("#{}", at - first + 1).c_str(),
                   fmt::format("at most {} arguments", b_.slots.size()), got);
    }
    if (options) read_options(last);
    finish();
  }

 private:
  void start() {
    singles_ = true;
    for (const InputDef& def : op_.inputs) singles_ &= def.arity != Arity::kList;
    if (singles_)
      while (call_.inputs.size() < op_.inputs.size()) call_.inputs.emplace_back();
    else
      lists_.resize(op_.inputs.size());
    call_.attrs = make_attrs(op_);
    if (!op_.attrs.empty()) given_.resize(op_.attrs.size());
    if (!b_.alias) return;
    const auto fixed = size_t(op_.attr_index(b_.alias->attr));
    call_.attrs[fixed] = b_.alias->value;
    given_[fixed] = true;
  }

  // Whether the last argument is an options table: it has string keys, or it is empty and its position takes no list.
  bool takes_options(int first, int last) {
    if (!is_plain_table(L_, last)) return false;
    if (has_string_keys(L_, last)) return !is_object(L_, last);
    if (lua_objlen(L_, last) > 0) return false;
    const size_t position = size_t(last - first);
    if (position < b_.slots.size()) {
      const Slot& s = b_.slots[position];
      if (s.is_input ? op_.inputs[size_t(s.index)].arity == Arity::kList : is_list(op_.attrs[size_t(s.index)].kind))
        return false;
    }
    return true;
  }

  int read_slot(const Slot& slot, int at, int last) {
    if (slot.is_input) return read_input(slot, at, last);
    const AttrDef& def = op_.attrs[size_t(slot.index)];
    if (lua_isnil(L_, at)) return at + 1;
    check_place(slot, def, at);
    if (slot.variadic && lua_type(L_, at) == LUA_TNUMBER) {
      int end = at;
      while (end <= last && lua_type(L_, end) == LUA_TNUMBER) ++end;
      if (end - at > 1) {
        lua_createtable(L_, end - at, 0);
        for (int i = at; i < end; ++i) {
          lua_pushvalue(L_, i);
          lua_rawseti(L_, -2, i - at + 1);
        }
        set_attr(slot.index, def, lua_gettop(L_));
        lua_pop(L_, 1);
        return end;
      }
    }
    const int device = def.kind == AttrKind::kDType && names_device(at) ? op_.attr_index("device") : -1;
    const int index = device >= 0 ? device : slot.index;
    set_attr(index, op_.attrs[size_t(index)], at);
    return at + 1;
  }

  // Throws if the value at a place is of a kind that shows that the places are confused, as in pg.full(2, 2, 7) and
  // pg.randint(6, {2}).
  void check_place(const Slot& slot, const AttrDef& def, int at) {
    const int type = lua_type(L_, at);
    if (def.kind == AttrKind::kDType && type == LUA_TNUMBER && b_.first_list_attr >= 0)
      bad_argument(op_.name, def.name, "the name of a dtype",
                   fmt::format("{}; the order is {}, with a list in one table", describe(L_, state_, at), form(&slot)));
    const bool number = def.kind == AttrKind::kInt || def.kind == AttrKind::kFloat || def.kind == AttrKind::kDim;
    if (number && (type == LUA_TTABLE || (type == LUA_TBOOLEAN && !op_.fill)))
      bad_argument(op_.name, def.name, def.kind == AttrKind::kFloat ? "a number" : "a whole number",
                   fmt::format("{}; the order is {}", describe(L_, state_, at), form(&slot)));
  }

  // Whether a script may call the op as x:name(…).
  bool is_method() const {
    return !op_.has(kFunctionOnly) && !b_.slots.empty() && b_.slots[0].is_input && b_.slots[0].index == 0 &&
           op_.inputs[0].arity == Arity::kOne;
  }

  // The call with the names of its arguments up to the slot `last`, or up to the last one that must be given, such as
  // "x:transpose(dim0, dim1)"; then one of the names in the table of options.
  std::string form(const Slot* last, int options = 0) const {
    size_t count = 0;
    for (size_t i = 0; i < b_.slots.size(); ++i) {
      const Slot& s = b_.slots[i];
      const bool needed = s.is_input ? op_.inputs[size_t(s.index)].arity != Arity::kOptional
                                     : must_be_given(op_.attrs[size_t(s.index)]);
      if (needed || &s == last) count = i + 1;
    }
    const bool method = is_method();
    std::string names;
    for (size_t i = method ? 1 : 0; i < count; ++i) {
      const Slot& s = b_.slots[i];
      names += names.empty() ? "" : ", ";
      names += s.is_input ? op_.inputs[size_t(s.index)].name : op_.attrs[size_t(s.index)].name;
    }
    const std::string option = options ? first_option(options, count) : "";
    if (!option.empty()) names += fmt::format("{}{{{} = …}}", names.empty() ? "" : ", ", option);
    return fmt::format("{}{}({})", method ? "x:" : "pg.", public_name(op_.name), names);
  }

  // The first name in a table of options, in sorted order, that is not one of the first slots.
  std::string first_option(int table, size_t slots) const {
    std::string first;
    for (lua_pushnil(L_); lua_next(L_, table); lua_pop(L_, 1)) {
      if (lua_type(L_, -2) != LUA_TSTRING) continue;
      const std::string key = lua_tostring(L_, -2);
      const auto has_name = [&](const Slot& s) {
        return key == (s.is_input ? op_.inputs[size_t(s.index)].name : op_.attrs[size_t(s.index)].name);
      };
      if (std::any_of(b_.slots.begin(), b_.slots.begin() + int64_t(slots), has_name)) continue;
      if (first.empty() || key < first) first = key;
    }
    return first;
  }

  // For x:to("cuda"): a string at the position of a dtype is a device if it is neither a dtype nor similar to one.
  bool names_device(int at) {
    if (lua_type(L_, at) != LUA_TSTRING || dtype_from_name(lua_tostring(L_, at))) return false;
    std::vector<std::string_view> names;
    for (int k = 0; k < kDTypeCount; ++k) names.push_back(name_of(DType(k)));
    return suggest(lua_tostring(L_, at), names).empty() && hint_of(L_, "dtype", lua_tostring(L_, at)).empty();
  }

  int read_input(const Slot& slot, int at, int last) {
    const InputDef& def = op_.inputs[size_t(slot.index)];
    if (def.arity != Arity::kList) {
      set_input(slot.index, def, at);
      return at + 1;
    }
    if (is_plain_table(L_, at)) {
      read_tensor_list(slot.index, def, at);
      return at + 1;
    }
    for (; at <= last && to_box(L_, state_, at); ++at)
      lists_[size_t(slot.index)].push_back(check_value(L_, state_, at, op_.name, def.name));
    return at;
  }

  void read_tensor_list(int index, const InputDef& def, int at) {
    const int n = int(lua_objlen(L_, at));
    for (int k = 1; k <= n; ++k) {
      lua_rawgeti(L_, at, k);
      const int top = lua_gettop(L_);
      if (!to_box(L_, state_, top))
        bad_argument(op_.name, def.name, "a table of tensors",
                     fmt::format("{} at place {}", describe(L_, state_, top), k));
      lists_[size_t(index)].push_back(check_value(L_, state_, top, op_.name, def.name));
      lua_pop(L_, 1);
    }
  }

  void set_input(int index, const InputDef& def, int at) {
    Value& place = singles_ ? call_.inputs[size_t(index)] : single_place(index);
    if (lua_type(L_, at) == LUA_TNUMBER) {
      place = Value(double(lua_tonumber(L_, at)));
      return;
    }
    if (lua_isnil(L_, at) && def.arity == Arity::kOptional) return;
    if (lua_isboolean(L_, at)) {
      place = make_scalar(lua_toboolean(L_, at), DType::kBool, device_of_tensors());
      return;
    }
    if (!to_box(L_, state_, at))
      bad_argument(op_.name, def.name, expected_input(op_, size_t(index)),
                   describe_instead_of_tensor(L_, state_, at, op_.name));
    place = check_value(L_, state_, at, op_.name, def.name);
  }

  // Of the first tensor among the arguments.
  Device device_of_tensors() {
    for (int at = 1; at <= lua_gettop(L_); ++at)
      if (Box* box = to_box(L_, state_, at); box && box->get().is_array()) return box->get().type().device;
    return {};
  }

  Value& single_place(int index) {
    if (lists_[size_t(index)].empty()) lists_[size_t(index)].emplace_back();
    return lists_[size_t(index)][0];
  }

  // Two lists at the place of a list of dims that an optional one follows are the values of both, as in
  // pg.tensordot(a, b, {{1, 3}, {2, 1}}).
  bool set_pair(int index, int at) {
    const size_t next = size_t(index) + 1;
    const auto takes_dims = [&](size_t i) { return i < op_.attrs.size() && op_.attrs[i].kind == AttrKind::kDims; };
    if (!takes_dims(next - 1) || !takes_dims(next) || !op_.attrs[next].optional) return false;
    if (!is_plain_table(L_, at) || lua_objlen(L_, at) != 2) return false;
    lua_rawgeti(L_, at, 1);
    lua_rawgeti(L_, at, 2);
    const int top = lua_gettop(L_);
    const bool pair = is_plain_table(L_, top - 1) && is_plain_table(L_, top);
    for (size_t k = 0; pair && k < 2; ++k) {
      const size_t i = next - 1 + k;
      call_.attrs[i] = read_attr(L_, state_, op_, op_.attrs[i], top - 1 + int(k));
      given_[i] = true;
    }
    lua_pop(L_, 2);
    return pair;
  }

  void set_attr(int index, const AttrDef& def, int at) {
    if (set_pair(index, at)) return;
    call_.attrs[size_t(index)] = read_attr(L_, state_, op_, def, at);
    given_[size_t(index)] = true;
    boolean_ |= def.kind == AttrKind::kFloat && lua_isboolean(L_, at);
  }

  void read_options(int table) {
    lua_pushnil(L_);
    while (lua_next(L_, table)) {
      if (lua_type(L_, -2) != LUA_TSTRING) {
        read_array_part(table);
      } else {
        read_option(lua_tostring(L_, -2), lua_gettop(L_), table);
      }
      lua_pop(L_, 1);
    }
  }

  // In {2, 3, keepdim = true} the array part is the value of the first list attribute.
  void read_array_part(int table) {
    if (array_part_done_) return;
    array_part_done_ = true;
    if (b_.first_list_attr < 0) bad_argument(op_.name, "options", "named options only", "an array part");
    const int n = int(lua_objlen(L_, table));
    lua_createtable(L_, n, 0);
    for (int k = 1; k <= n; ++k) {
      lua_rawgeti(L_, table, k);
      lua_rawseti(L_, -2, k);
    }
    set_option(b_.slots[size_t(b_.first_list_attr)].index, lua_gettop(L_));
    lua_pop(L_, 1);
  }

  void set_option(int attr, int at) {
    const AttrDef& def = op_.attrs[size_t(attr)];
    if (given_[size_t(attr)]) bad_argument(op_.name, def.name, "one value", "one by position and one by name");
    set_attr(attr, def, at);
  }

  void read_option(const char* key, int at, int table) {
    const int attr = op_.attr_index(key);
    if (attr >= 0 && op_.attrs[size_t(attr)].kind != AttrKind::kRandom) return set_option(attr, at);
    if (op_.random_attr >= 0 && !std::strcmp(key, "generator"))
      return set_attr(op_.random_attr, op_.attrs[size_t(op_.random_attr)], at);
    for (size_t i = 0; i < op_.inputs.size(); ++i) {
      if (std::strcmp(op_.inputs[i].name, key)) continue;
      if (singles_ ? call_.inputs[i].defined() : !lists_[i].empty())
        bad_argument(op_.name, key, "one value", "one by position and one by name");
      if (op_.inputs[i].arity == Arity::kList)
        read_tensor_list(int(i), op_.inputs[i], at);
      else
        set_input(int(i), op_.inputs[i], at);
      return;
    }
    for (size_t i = 0; i < op_.options.size(); ++i) {
      if (std::strcmp(op_.options[i].name, key)) continue;
      if (call_.options.size() == 0) call_.options = Attrs(op_.options.size());
      call_.options[i] = read_attr(L_, state_, op_, op_.options[i], at);
      return;
    }
    std::vector<std::string_view> known;
    for (const AttrDef& def : op_.attrs) known.push_back(def.kind == AttrKind::kRandom ? "generator" : def.name);
    for (const AttrDef& def : op_.options) known.push_back(def.name);
    for (const InputDef& def : op_.inputs) known.push_back(def.name);
    unknown_option(L_, op_.name, key, known, table);
  }

  // Describes an argument that no position and no option gave.
  std::string absent(bool is_input, int index) {
    size_t position = 0;
    while (position < b_.slots.size() &&
           !(b_.slots[position].is_input == is_input && b_.slots[position].index == index))
      ++position;
    const int last = lua_gettop(L_);
    const bool only_options = int(position) + 1 == last && lua_istable(L_, last);
    if (int(position) < last && !only_options) return "nil; a misspelled variable or field is nil";
    if (is_input && position == 0 && op_.has(kFunctionOnly)) return "nothing; write " + form(&b_.slots[0]);
    if (is_input && position == 0) return fmt::format("nothing; write x:{0}() with a colon, or pg.{0}(x)", op_.name);
    if (is_input && lua_type(L_, 1) == LUA_TNUMBER && !op_.has(kFunctionOnly))
      return fmt::format("nothing; write x:{}(…) with a colon to pass x", op_.name);
    if (position < b_.slots.size())
      return fmt::format("nothing; write {}", form(&b_.slots[position], only_options ? last : 0));
    return fmt::format("nothing; write {{{} = …}}",
                       is_input ? op_.inputs[size_t(index)].name : op_.attrs[size_t(index)].name);
  }

  void finish() {
    for (size_t i = 0; i < op_.attrs.size(); ++i) {
      const AttrDef& def = op_.attrs[i];
      if (!given_[i] && must_be_given(def)) bad_argument(op_.name, def.name, "a value", absent(false, int(i)));
      if (!given_[i] && std::holds_alternative<Device>(def.fallback)) call_.attrs[i] = state_.default_device;
      // pg.full(shape, true)
      if (!given_[i] && boolean_ && std::holds_alternative<DType>(def.fallback)) call_.attrs[i] = DType::kBool;
    }
    if (singles_) {
      for (size_t i = 0; i < op_.inputs.size(); ++i)
        if (!call_.inputs[i].defined() && op_.inputs[i].arity == Arity::kOne)
          bad_argument(op_.name, op_.inputs[i].name, expected_input(op_, i), absent(true, int(i)));
      return;
    }
    size_t length = 0;
    bool first = true;
    for (size_t i = 0; i < op_.inputs.size(); ++i) {
      if (op_.inputs[i].arity != Arity::kList) {
        if (single_place(int(i)).defined() || op_.inputs[i].arity == Arity::kOptional) continue;
        bad_argument(op_.name, op_.inputs[i].name, "a tensor", "nil");
      }
      if (!first && lists_[i].size() != length)
        bad_argument(op_.name, op_.inputs[i].name, fmt::format("{} tensors", length), std::to_string(lists_[i].size()));
      length = lists_[i].size();
      first = false;
    }
    for (auto& list : lists_)
      for (Value& v : list) call_.inputs.push_back(std::move(v));
  }

  lua_State* L_;
  State& state_;
  const OpBinding& b_;
  const OpDef& op_;
  Call& call_;
  bool singles_ = true, array_part_done_ = false;
  bool boolean_ = false;  // the element of an op that fills was given as a boolean
  std::vector<std::vector<Value>> lists_;
  struct Flags {
    bool inline_[24] = {};
    std::vector<char> more;
    bool& operator[](size_t i) { return i < 24 ? inline_[i] : reinterpret_cast<bool&>(more[i - 24]); }
    void resize(size_t n) {
      if (n > 24) more.resize(n - 24);
    }
  } given_;
};

}  // namespace

const char* expected_input(const OpDef& op, size_t i) {
  const bool last = i + 1 == op.inputs.size();
  return op.has(kPointwise) || op.has(kNumberOk) || (op.has(kWeakNumber) && last) ? "a tensor or a number" : "a tensor";
}

void read_arguments(lua_State* L, State& state, const OpBinding& binding, int first, Call& call) {
  Reader(L, state, binding, call).read(first);
  if (binding.op->complete) binding.op->complete(state.ctx, *binding.op, call.inputs, call.attrs);
}

}  // namespace pg::vm
