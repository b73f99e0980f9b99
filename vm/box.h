// Box: the userdata of a Lua tensor. It holds one immutable Value; in-place methods and item assignment rebind the box.
#pragma once
#include <functional>

#include "vm/state.h"

namespace pg::vm {

struct Box {
  Value value;
  Ref<Cell> cell;  // set for boxes that share their value with others (`x.grad`)
  State* state = nullptr;
  uint64_t serial = 0;
  int64_t bytes = 0;       // bytes accounted for this box
  uint64_t scope = 0;      // id of the pg.scope that frees it; 0: none
  uint64_t stamp = 0;      // stamp of the last run of a program with this box as an input
  uint32_t view = 0;       // for an indexing read: its slot among the views, see note_view; 0: none
  bool read_only = false;  // whether it is the result of an indexing read
  bool released = false;
  bool has_extra = false;      // whether its environment is its own table (see push_extra)
  bool collected : 1 = false;  // whether its finalizer has run
  bool symbolic : 1 = false;   // whether it is among State::symbol_boxes
  bool logged : 1 = false;     // whether a WriteLog may hold its address

  Value& get() { return cell ? cell->value : value; }
};

// The box at stack index `i`, or nullptr if the value is no tensor.
Box* to_box(lua_State* L, State& state, int i);

// The same, but they throw `op: bad argument 'name' (expected a tensor, got …)` if the value is no tensor. check_value
// also throws for a released tensor and a parameter without a value.
Box& check_box(lua_State* L, State& state, int i, const char* op, const char* name);
Value& check_value(lua_State* L, State& state, int i, const char* op, const char* name);

// Throws if the box holds no usable value.
void require_value(lua_State* L, Box& box, int i, const char* op, const char* name);

// Pushes a new box. May run the collector (see State::relieve_pressure).
Box& push_box(lua_State* L, State& state, Value value);

// Pushes boxes of all values. A `share` of their bytes counts for the time of the next collection: one in so many.
void push_results(lua_State* L, State& state, Values& values, int share = 1);
// Pushes a list of such boxes.
void push_list(lua_State* L, State& state, std::span<const Value> values);

// Pushes a list of the texts text_of(element); text_of may be a pointer to a member.
template <class List, class TextOf = std::identity>
void push_names(lua_State* L, const List& list, TextOf text_of = {}) {
  lua_newtable(L);
  int count = 0;
  for (const auto& each : list) {
    const std::string_view text = std::invoke(text_of, each);
    lua_pushlstring(L, text.data(), text.size());
    lua_rawseti(L, -2, ++count);
  }
}

// leave_scope removes the box from its pg.scope. enter_scope adds the box at stack index i to the innermost running
// scope of the first `below` scopes.
void leave_scope(Box& box);
void enter_scope(lua_State* L, State& state, int i, size_t below);

// Sets the value and updates the accounted bytes. `held`: something else holds the memory of the value before, which is
// lent. Write logs note it.
void set_value(Box& box, Value value, bool held = false);
// The same, but no log notes it: for a trace, which puts symbols in place of values.
void put_value(Box& box, Value value, bool held = false);

// Rebinds the box to `value` as an in-place method does. Throws for read-only boxes, and for leaves while recording.
void check_writable(const Box& box, const char* op);  // throws for read-only boxes only
void check_in_place(lua_State* L, State& state, Box& box, const char* op);
void rebind_in_place(State& state, Box& box, Value value, const char* op);

// Returns the value for a box that held `old` after op has stored `now` in it: a leaf stays a leaf. A trace records the
// write. Without an op name the write is not checked when the trace runs.
Value written(State& state, const char* op, const Value& old, Value now);

// Moves the box's value into `place` during a call of an op, so that the op may overwrite a uniquely owned buffer.
// Without finish() the box gets the value back unchanged.
class Lent {
 public:
  Lent(Box& box, Value& place, std::string op);
  ~Lent();
  void finish(Value result);  // rebinds the box; a leaf stays a leaf

 private:
  Box& box_;
  Value kept_;  // the history of the lent value; in a trace the value itself, since symbols own no memory
  Value& place_;
  std::string op_;
  bool done_ = false;
  const bool held_;   // something else holds the memory of the value, too
  const bool lends_;  // not in a job: while it is suspended others see the tensor as it was
};

// Pushes the table of Lua fields of the box at stack index i. Makes it at the first use.
void push_extra(lua_State* L, Box& box, int i);

// The name of the parameter or symbol at stack index i, or "".
std::string parameter_name(lua_State* L, Box& box, int i);

// A short description of the Lua value for error texts: "nil", "number 3", "float32 2x3 cpu", "table".
std::string describe(lua_State* L, State& state, int i);

// Whether the value at stack index i is a class of the library or an object of one.
bool is_object(lua_State* L, int i);

// The same for an argument of a call: tells an argument that is absent from one that is nil.
std::string describe_argument(lua_State* L, State& state, int i);

// The same for an argument that should be a tensor: says what the likely mistake is.
std::string describe_instead_of_tensor(lua_State* L, State& state, int i, const char* op);

// Boxes that are views of another tensor's buffer. Before a write in place to that tensor, views that are smaller than
// it are copied, so that the write does not have to copy the whole tensor. note_view registers the box on top of the
// stack.
void note_view(lua_State* L, State& state, const Value& whole);
void forget_view(Box& box);
void detach_views(lua_State* L, State& state, const Value& whole);

void open_box(lua_State* L, State& state);  // makes the metatable; pushes it

}  // namespace pg::vm
