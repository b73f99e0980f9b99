// TraceSession: a Lua function while it is traced. Tensors from outside become inputs of the graph when the script
// first touches them: for the extent of the trace their boxes hold symbols. Afterwards every box is as it was before.
#pragma once
#include <deque>
#include <optional>

#include "graph/exec/program.h"
#include "vm/box.h"

namespace pg::vm {

class BodyBuilder;

class TraceSession final : public GraphBuilder {
 public:
  // A lasting one has no end: between the calls that are part of it (see rest) every box has its own value.
  TraceSession(lua_State* L, State& state, bool lasting = false);
  ~TraceSession() override;
  TraceSession(const TraceSession&) = delete;

  // A tensor from outside of the trace, or a `.grad` of one.
  struct Captured {
    Box* box = nullptr;  // of kind tensor; kept alive by `boxes`
    Ref<Cell> cell;      // of a gradient
    TapeNode* leaf = nullptr;
    Value before, symbol;
    Value now;            // of a lasting session: what the box holds within it
    int32_t input = -1;   // of the graph; -1 for a gradient that is only written
    int32_t owner = -1;   // of a gradient: index of the captured tensor that is its leaf
    int32_t output = -1;  // of the graph, where the script rebound it
    std::string op;       // what did
  };
  // The freshness of a leaf's gradient, which Trainer reads and clears.
  struct Freshness {
    TapeNode* leaf;
    int32_t owner;
    bool before;
    bool read = false, after = false;
  };

  // Called whenever the binding is about to use what a box holds, or to rebind it.
  void touch(lua_State* L, Box& box, int i);  // i: where on the stack it is
  bool owns_leaf(TapeNode* leaf) const { return owner_of(leaf) >= 0; }
  bool is_captured(const Box& box) const { return places_.count(&box) > 0; }
  bool fresh(TapeNode& leaf);
  void set_fresh(TapeNode& leaf, bool fresh);

  // Of a lasting session, after a call that was part of it: gives every box its value back.
  void rest();

  // After the traced function: gives every box its value back and notes what the script changed.
  void end();

  // After end(): the graph output that holds the value of a tensor made inside.
  int32_t output(lua_State* L, int i);
  // After end(): the place among captured tensors of the box at i, or -1; a tensor from outside that no op used
  // becomes an input now.
  int32_t input_of(lua_State* L, int i);

  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;
  std::string position() override;
  Mode training_mode(Context& ctx) override;
  Mode recording_mode(Context& ctx) override;

  // The flags as the script read them, when it did.
  void read_flags(bool recording, bool training);

  // Whether a value is a symbol that may be used now, and what the script read of its type.
  bool sees(const Value& value) const { return innermost->knows(value); }
  void note(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer) {
    innermost->guard(value, kind, dim, answer);
  }

  GraphBuilder* innermost = this;  // this, or the builder of the body that is being traced
  BodyBuilder* body = nullptr;     // the same where it is one
  std::deque<Captured> captured;   // tensors and gradients, in order of first use
  std::vector<Freshness> freshness;
  std::optional<bool> guards_recording, guards_training;
  bool records = false;  // a result was recorded inside, where no one recorded the call
  std::string failed;    // the first error that the script may not catch away
  Reference boxes;       // a table: index in `captured` → tensor

 private:
  void capture(lua_State* L, Box& box, int i);
  bool wake(Box& box);
  Captured* find(const Box& box);
  int32_t owner_of(TapeNode* leaf) const;
  int32_t capture_gradient(Ref<Cell> cell, TapeNode* leaf, bool as_input);

  lua_State* L_;
  State& state_;
  uint64_t first_box_, first_token_;
  bool recording_, training_;
  bool lasting_, ended_ = false;
  std::vector<int32_t> awake_;  // of a lasting session: captured boxes that hold symbols now
  std::unordered_map<const Box*, int32_t> places_;
  std::unordered_map<const Cell*, int32_t> cells_;
};

// While a function is traced, what it reads of a type binds the trace to it.
void note(State& state, const Value& v, TypeGuard::Kind kind, int32_t dim, int64_t answer);
void note_device(State& state, const Value& v);
void note_rank(State& state, const Value& v);
void note_shape(State& state, const Value& v);

// The body of a combinator or of a backward function, while it is traced inside of a session. In the body of a
// combinator tensors from outside hold inputs of the body, each its own, so that what the body writes to them is known.
class BodyBuilder final : public GraphBuilder {
 public:
  enum class Kind { kBackward, kCombinator };
  BodyBuilder(lua_State* L, State& state, TraceSession& session, Kind kind);
  ~BodyBuilder() override;
  BodyBuilder(const BodyBuilder&) = delete;

  struct Outside {
    Box* box;
    Value before, symbol, now;  // now: after close()
    bool written = false;
  };
  std::vector<Outside> outside;

  // As TraceSession::touch.
  void touch(lua_State* L, Box& box, int i);
  // After the traced function: gives every tensor from outside its value back. The body is not entered again.
  void close();

  std::string position() override { return session_.position(); }
  Mode training_mode(Context& ctx) override { return session_.training_mode(ctx); }
  Mode recording_mode(Context& ctx) override { return session_.recording_mode(ctx); }
  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;
  // Whether a carry requires a gradient is not the same at each step, so that is asked of tensors from outside alone.
  void guard(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer) override;

 private:
  State& state_;
  TraceSession& session_;
  Interpreter* outer_;
  GraphBuilder* enclosing_;
  BodyBuilder* enclosing_body_;
  Kind kind_;
  uint64_t first_box_;
  Reference boxes_;  // keeps the tensors of `outside`
  int depth_;
  bool closed_ = false;
};

// What a call of a program needs besides the graph: which boxes its inputs are and what it writes back.
struct ProgramCall {
  struct WriteBack {
    int32_t box, output;
    bool gradient;
    std::string op = {};  // what wrote
  };
  struct Fresh {
    int32_t box;
    int8_t expected;  // -1: not read
    bool after;
    GradReq req;  // as which the trace wrote the gradient
  };
  Ref<Program> program;
  int32_t boxes = 0;                  // tensors that a call passes
  std::vector<int32_t> unrequested;   // tensors with grad_req "null" in a trace that takes gradients
  std::vector<int32_t> input_boxes;   // by input: the tensor it is, or whose gradient it is
  std::vector<char> input_gradients;  // by input: whether it is the gradient
  std::vector<WriteBack> writes;
  std::vector<Fresh> fresh;
  std::vector<int32_t> results;  // outputs of the graph that become new tensors
  std::optional<bool> recording, training;
  bool records = false;  // gradients flow back from its results even where the call is not recorded
};

// The program at stack index i; throws when there is none.
ProgramCall& check_program(lua_State* L, int i);
void push_program(lua_State* L, std::unique_ptr<ProgramCall> call);

// replay(program, tensors…) → what run answers, op by op: eagerly, or as part of the trace under way. See vm/graph.cpp.
int replay_program(lua_State* L, State& state);

void open_symbols(lua_State* L, State& state);  // core.symbols
void open_control(lua_State* L, State& state);  // core.trace_loop, core.trace_branch
void open_program(lua_State* L, State& state);  // core.run
void open_trace(lua_State* L, State& state);    // core.trace, core.tracing

}  // namespace pg::vm
