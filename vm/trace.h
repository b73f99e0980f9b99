// TraceSession: the trace of a Lua function. Outer tensors become inputs of the graph when the script first uses them:
// during the trace their boxes hold symbols. Afterwards every box has its value from before.
#pragma once
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/exec/program.h"
#include "vm/box.h"

namespace pg::vm {

class BodyBuilder;

class TraceSession final : public GraphBuilder {
 public:
  // A lasting session never ends. Between the calls that belong to it (see rest) every box has its own value.
  TraceSession(lua_State* L, State& state, bool lasting = false);
  ~TraceSession() override;
  TraceSession(const TraceSession&) = delete;

  // A tensor from outside of the trace, or the `.grad` of one.
  struct Captured {
    Box* box = nullptr;  // of a tensor; kept alive by `boxes`
    Ref<Cell> cell;      // of a gradient
    TapeNode* leaf = nullptr;
    Value before, symbol;
    Value now;               // in a lasting session: the value of the box within it
    int32_t input = -1;      // index of the graph input; -1 for a gradient that is only written
    int32_t place = 0;       // the number of tensors among those before it
    int32_t owner = -1;      // for a gradient: index of the captured tensor that is its leaf
    int32_t output = -1;     // index of the graph output with the new value, if the script rebound the box
    std::string op;          // the op that rebound it
    bool parameter = false;  // of a block; most runs find it unchanged
  };
  // Whether a leaf's gradient is fresh, which Trainer reads and clears.
  struct Freshness {
    TapeNode* leaf;
    int32_t owner;
    bool before;
    bool read = false, after = false;
  };

  // An output of the graph that is a leaf made inside of the trace.
  struct MadeLeaf {
    int32_t output;
    int32_t gradient;  // index of the graph output with its `.grad`; -1 for zeros
    bool fresh;
  };

  // Called before the binding uses the value of a box or rebinds it.
  void touch(lua_State* L, Box& box, int i);  // i: the stack index of the box
  bool is_captured(const Box& box) const { return places_.count(&box) > 0; }
  bool made(const Box& box) const { return box.serial >= first_box_; }  // whether the traced function made it
  bool fresh(TapeNode& leaf);
  void set_fresh(TapeNode& leaf, bool fresh);

  // For a lasting session, after a call that belongs to it: restores the value of every box.
  void rest();

  // After the traced function: restores the value of every box and records what the script changed.
  void end();

  // After end(): the graph output with the value of a tensor made inside of the trace.
  int32_t output(lua_State* L, int i);
  // After end(): the index of the box at i among the captured tensors, or -1. An outer tensor that no op used becomes
  // an input now.
  int32_t input_of(lua_State* L, int i);

  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;
  [[noreturn]] void refuse(const std::string& why, const std::string& error) override;
  std::string position() override;
  Mode training_mode(Context& ctx) override;
  Mode recording_mode(Context& ctx) override;

  // Guards the flags that the script reads.
  void read_flags(bool recording, bool training);
  bool recording() const { return recording_; }  // whether the call is recorded

  // sees: whether a value is a symbol that may be used now. note: guards a property of its type that the script read.
  bool sees(const Value& value) const { return innermost->knows(value); }
  void note(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer) {
    innermost->guard(value, kind, dim, answer);
  }

  GraphBuilder* innermost = this;  // this, or the builder of the body that is being traced
  BodyBuilder* body = nullptr;     // innermost, if it is the builder of a body
  std::deque<Captured> captured;   // tensors and gradients, in order of first use
  std::vector<Freshness> freshness;
  std::vector<MadeLeaf> made_leaves;
  std::vector<char> read_only;  // by result of run: Box::read_only
  std::optional<bool> guards_recording, guards_training;
  bool records = false;  // a result was recorded inside, although the call was not recorded
  // Numbers that run_untraced has drawn from the default generator after the first `at` ticks of the trace.
  struct Drawn {
    uint64_t at, count;
  };
  std::vector<Drawn> drawn;
  std::string failed;  // the first error that fails the trace even if the script catches it
  std::string plain;   // why the function can only run as plain Lua, if it can: see refuse
  Reference boxes;     // a Lua table: index in `captured` → tensor

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
  std::vector<int32_t> awake_;  // in a lasting session: captured boxes that hold symbols now
  int32_t tensors_ = 0;         // captured, not counting gradients
  std::unordered_map<const Box*, int32_t> places_;
  std::unordered_map<const Cell*, int32_t> cells_;
  std::unordered_map<const TapeNode*, int32_t> owners_;  // by leaf: the captured tensor
  std::unordered_set<const TapeNode*> known_freshness_;  // the leaves of `freshness`
};

// While a function is traced, these guard the properties of a type that it reads.
void note(State& state, const Value& v, TypeGuard::Kind kind, int32_t dim, int64_t answer);
void note_device(State& state, const Value& v);
void note_rank(State& state, const Value& v);
void note_shape(State& state, const Value& v);
bool note_requires_grad(State& state, const Value& v);  // returns it

// The trace of the body of a combinator or of a backward function, inside of a session. In the body of a combinator
// each outer tensor holds its own input of the body, so that writes of the body are detected.
class BodyBuilder final : public GraphBuilder {
 public:
  enum class Kind { kBackward, kCombinator };
  BodyBuilder(lua_State* L, State& state, TraceSession& session, Kind kind);
  ~BodyBuilder() override;
  BodyBuilder(const BodyBuilder&) = delete;

  struct Outside {
    Box* box;
    Value before, symbol, now;  // now: the value at the end of the body, set by close()
    bool written = false;
  };
  std::vector<Outside> outside;
  const Outside* find(const Box* box) const {
    const auto at = places_.find(box);
    return at == places_.end() ? nullptr : &outside[at->second];
  }

  // As TraceSession::touch.
  void touch(lua_State* L, Box& box, int i);
  // After the traced function: restores the value of every outer tensor. The body is not entered again.
  void close();

  std::string position() override { return session_.position(); }
  Mode training_mode(Context& ctx) override { return session_.training_mode(ctx); }
  Mode recording_mode(Context& ctx) override { return session_.recording_mode(ctx); }
  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;
  // A carry may require a gradient in some steps only, so requires_grad is guarded for outer tensors only.
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
  std::unordered_map<const Box*, size_t> places_;
  int depth_;
  bool closed_ = false;
};

// The data of a program call besides the graph: the boxes of its inputs, and its write-backs.
struct ProgramCall {
  struct WriteBack {
    int32_t box, output;
    bool gradient;
    std::string op = {};            // the op that wrote
    std::optional<bool> leaf = {};  // whether the tensor had attach_grad in the trace; none: any will do
  };
  struct Fresh {
    int32_t box;
    int8_t expected;  // -1: not read
    bool after;
    GradReq req;  // the grad_req with which the trace wrote the gradient
  };
  Ref<Program> program;
  mutable Ref<Program> first;            // for the call that was traced, if it needs one of its own
  int32_t boxes = 0;                     // the number of tensors that a call passes
  std::vector<int32_t> unrequested;      // tensors with grad_req "null" in a trace that computes gradients
  std::vector<int32_t> without_history;  // in a trace whose gradients might flow out of it through a history of these
  std::vector<int32_t> input_boxes;      // by input: the index of its tensor
  std::vector<char> input_gradients;     // by input: whether it is the gradient of that tensor
  std::vector<WriteBack> writes;
  std::vector<int32_t> rewritten;  // the inputs that `writes` rewrites; set by push_program
  std::vector<int32_t> replaced;   // by output: the write that replaces a gradient by it without reading it, or -1
  std::vector<Fresh> fresh;
  std::vector<TraceSession::MadeLeaf> made_leaves;
  std::vector<int32_t> results;  // outputs of the graph that become new tensors
  std::vector<char> read_only;   // by result: Box::read_only
  std::optional<bool> recording, training;
  bool of_model = false;  // whether the lines of its graph are those of a script that made a model: see error_of_caller
  bool records = false;   // whether its results have gradients even if the call is not recorded
};

// Returns a program for the call that was traced, if it needs one of its own, else null. Parameters have drawn their
// initial values from the generator while the function was traced, and its ops run after that. Those before such a draw
// in the script have earlier ticks in the run of this call, as they have eagerly.
Ref<Program> first_program(const TraceSession& session, const Ref<Generator>& generator,
                           const Program::Options& options);

// Ends a call of the program at 1, see check_boxes: replaces the arguments by the results among the outputs of a run,
// or by a list of them if it got a list. Returns the number of values. share: see push_results.
int push_call_results(lua_State* L, State& state, const ProgramCall& call, Values out, int share = 1);

// The program at stack index i. Throws if there is none.
ProgramCall& check_program(lua_State* L, int i);

// The tensors for a call of the program at 1. They follow it as arguments or in one list.
// `raiser`: for errors.
SmallVector<Box*, 16> check_boxes(lua_State* L, State& state, const ProgramCall& call, const char* raiser);
void push_program(lua_State* L, std::unique_ptr<ProgramCall> call);

// replay(program, tensors…) → the results of run, computed op by op: eagerly, or as part of the trace in progress. See
// vm/graph.cpp.
int replay_program(lua_State* L, State& state);

// The lines of a model's graph are those of the script that made it. Returns an error at one of them as an error of the
// call that runs the graph, with the line at its end.
Error error_of_caller(const Graph& graph, const Error& e);

void open_symbols(lua_State* L, State& state);  // core.symbols
void open_control(lua_State* L, State& state);  // core.trace_loop, core.trace_branch
void open_program(lua_State* L, State& state);  // core.run
void open_trace(lua_State* L, State& state);    // core.trace, core.tracing

}  // namespace pg::vm
