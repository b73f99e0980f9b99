// Box: a Lua tensor. Holds one immutable Value; in-place methods and item assignment rebind the box.
#pragma once
#include "vm/state.h"

namespace pg::vm {

struct Box {
  Value value;
  Ref<Cell> cell;  // set for boxes that share their value with others (`x.grad`)
  State* state = nullptr;
  uint64_t serial = 0;
  int64_t bytes = 0;       // accounted for this box
  uint64_t scope = 0;      // id of the pg.scope that frees it; 0: none
  uint64_t stamp = 0;      // of the last run of a program that it was an input of
  uint32_t view = 0;       // of an indexing read: its slot among the views, see note_view; 0: none
  bool read_only = false;  // the result of an indexing read
  bool released = false;
  bool collected = false;  // its finalizer has run
  bool has_extra = false;  // its environment is a table of its own (see push_extra)

  Value& get() { return cell ? cell->value : value; }
};

// The box at stack index `i`, or nullptr when that is no tensor.
Box* to_box(lua_State* L, State& state, int i);

// The same, throwing `op: bad argument 'name' (expected a tensor, got …)`; also for a released tensor and a
// parameter without value.
Box& check_box(lua_State* L, State& state, int i, const char* op, const char* name);
Value& check_value(lua_State* L, State& state, int i, const char* op, const char* name);

// Throws when the box holds no usable value.
void require_value(lua_State* L, Box& box, int i, const char* op, const char* name);

// Pushes a fresh box. May run the collector (see State::relieve_pressure).
Box& push_box(lua_State* L, State& state, Value value);
void push_results(lua_State* L, State& state, Values& values);

// Takes the box out of its pg.scope; puts the one at stack index i into the innermost running scope of the first
// `below`.
void leave_scope(Box& box);
void enter_scope(lua_State* L, State& state, int i, size_t below);

// Rebinds: adjusts the account.
void set_value(Box& box, Value value);
// The same even while pg.checkpoint computes again.
void put_value(Box& box, Value value);

// Rebinds the box to `value` as an in-place method does: refuses read-only boxes, and leaves while recording.
void check_writable(const Box& box, const char* op);  // the first of these only
void check_in_place(lua_State* L, State& state, Box& box, const char* op);
void rebind_in_place(State& state, Box& box, Value value, const char* op);

// What a box that held `old` holds after op has stored `now` in it: a leaf stays one. A trace notes the write; without
// a name nothing is checked when it runs again.
Value written(State& state, const char* op, const Value& old, Value now);

// Gives the box's value to an op for the extent of a call, so that a uniquely held buffer can be rewritten. Without
// finish() the box takes the value back: nothing changed.
class Lent {
 public:
  Lent(Box& box, Value& place, std::string op);
  ~Lent();
  void finish(Value result);  // rebinds the box; a leaf stays one

 private:
  Box& box_;
  Value kept_;  // the history while the value is lent; in a trace the value, which shares no memory
  Value& place_;
  std::string op_;
  bool done_ = false;
};

// Pushes the table of Lua fields that belongs to the box at stack index i, making it on first use.
void push_extra(lua_State* L, Box& box, int i);

// The name of a parameter or symbol, the box at stack index i; else "".
std::string parameter_name(lua_State* L, Box& box, int i);

// A short description of the Lua value for error texts: "nil", "number 3", "float32 2x3 cpu", "table".
std::string describe(lua_State* L, State& state, int i);

// Boxes that are views into another tensor's buffer. Before that tensor is written in place the views are copied out
// when they are smaller than it, so that the write need not copy the whole. note_view: of the box on top of the stack.
void note_view(lua_State* L, State& state, const Value& whole);
void forget_view(Box& box);
void detach_views(lua_State* L, State& state, const Value& whole);

void open_box(lua_State* L, State& state);  // makes the metatable; pushes it

}  // namespace pg::vm
