// GraphBuilder: the interpreter that writes programs. Applied ops become nodes. Their results are symbols: arrays with
// a type and no memory. It is used while a script is traced, and when a trace is replayed for the types of a call.
#pragma once
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "graph/ir/control.h"
#include "tensor/context.h"

namespace pg {

class GraphBuilder : public Tracer {
 public:
  // kTrace leaves open what only a run decides: modes, random keys, gradients and decompositions. kReplay resolves it.
  enum class Stage { kTrace, kReplay };
  // With a parent, the builder writes a closed body: a value of the parent becomes an input of the body when it is
  // used.
  explicit GraphBuilder(Stage stage, GraphBuilder* parent = nullptr);

  Graph graph;
  std::vector<Operand> captures;  // operands of the parent, in the order of the body's inputs for them
  Values captured_values;         // the same as values of the parent, with their history

  Value add_input(const Type& type, std::string name = "");
  Value add_constant(const Value& value);  // equal arrays share one node
  Operand operand_of(const Value& value);  // of a number, nothing, a symbol of this builder, or a constant array
  bool owns(const Value& value) const { return value.is_array() && value.array().symbol.builder == id_; }
  bool knows(const Value& value) const { return owns(value) || (parent_ && parent_->knows(value)); }
  Operand symbol_of(const Value& value) const { return {value.array().symbol.node, value.array().symbol.output, 0}; }

  Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) override;
  Value filled(Context& ctx, const Type& type, double number) override;
  Tracer* tracer() override { return stage_ == Stage::kTrace ? this : nullptr; }
  Value detach(Context& ctx, const Value& value) override;
  Value leaf(Context& ctx, const Value& value, TapeNode* leaf) override;
  Value write(Context& ctx, const std::string& op, const Value& old, const Value& now) override;
  Value value_of(TapeNode* leaf) override;
  void check_inside(std::span<const Value> heads, std::span<const Value> wanted, uint64_t first) override;
  Values gradient(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                  std::span<const Value> wanted, bool create_graph, uint64_t first) override;
  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;

  // Applies a branch or loop. `flows` says, while tracing, through which outputs gradients flow.
  Values control(Context& ctx, const Control& control, std::span<const Value> inputs, std::span<const char> flows);

  // Copies the nodes of another graph of the same stage, with these values in place of its inputs. Returns its outputs.
  Values splice(Context& ctx, const Graph& graph, std::span<const Value> inputs);

  // Returns the value as one that gradients can be taken with respect to: with its history where a run finds one, else
  // as a leaf.
  Value fresh_input(Context& ctx, const Value& value);

  // Records that the type of `stack` lacks its number of rows, which is the value `steps` (see LoopForm). Two such
  // stacks are added by a loop.
  void mark_unlimited(const Value& stack, const Value& steps);

  // Returns `outputs` with `saved` and a custom gradient: the closed graph `backward` maps (saved…, cotangents…) to one
  // gradient per input.
  Values custom(Context& ctx, std::string name, std::span<const Value> inputs, std::span<const Value> outputs,
                std::span<const Value> saved, std::shared_ptr<const Graph> backward);

  std::vector<Value> capture_inputs;  // the body's inputs, one per capture

  Value symbol(const Operand& operand) const;  // the array that represents an output of a node

  // Makes this symbol the value of the leaf.
  void link_leaf(const Value& value, TapeNode* leaf);
  // Links the symbol to a node that ends walks over the trace, in place of the history that the value has outside.
  void link_outside(Value& symbol, const Value& outside);

  // If the value is the result of a write, returns what the write stored. Otherwise returns the value.
  Value stored(const Value& value) const;

  // Records that the script read this property of a type.
  virtual void guard(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer);

  // The function that is traced does what no graph can hold. Throws the error. why: for the warning that it runs as
  // plain Lua.
  [[noreturn]] virtual void refuse(const std::string& why, const std::string& error);

  // Called for each node of a trace. The defaults are those of the parent.
  virtual std::string position() { return parent_ ? parent_->position() : std::string(); }
  virtual Mode training_mode(Context& ctx) { return parent_ ? parent_->training_mode(ctx) : Mode::kAuto; }
  virtual Mode recording_mode(Context& ctx) { return parent_ ? parent_->recording_mode(ctx) : Mode::kAuto; }

  // Modes of nodes, fixed by a graph that is being replayed into this one. kAuto leaves them to training_mode and
  // recording_mode.
  Mode imposed_training = Mode::kAuto, imposed_recording = Mode::kAuto;

  std::string_view imposed_name;  // the name that the script called the op by in that graph
  int32_t current_line = -1;
  std::vector<Ref<Generator>> generators;  // by the index that random keys use
  // Takes the next `count` ticks of a generator and returns the key of the first.
  RandomKey take_ticks(const Ref<Generator>& generator, uint64_t count);
  // Whether the builder writes a body whose ticks come from streams of its own (BodyStream).
  bool own_streams = false;
  // Takes one stream for each generator that these bodies of a node take ticks of.
  std::vector<BodyStream> take_streams(std::span<const std::shared_ptr<const Graph>> bodies);

 protected:
  int32_t line_now(const char* raiser = nullptr);

 private:
  Values emit(Context& ctx, Node node);
  Values decompose(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs);
  Attrs with_random_key(Context& ctx, const OpDef& op, const Attrs& attrs);
  void record_path(Context& ctx, const Node& node, std::span<const Value> inputs, std::span<Value> outputs);

  const Value* outside_of(const TapeNode* node) const;
  Operand captured(const Value& value);
  const Value* steps_of(const Value& stack) const;
  Values add_rows(Context& ctx, const OpDef& add, std::span<Value> inputs, const Value& steps);
  size_t index_of(const Ref<Generator>& generator);

  Stage stage_;
  GraphBuilder* parent_;
  uint64_t id_;
  std::unordered_map<const Array*, std::pair<Ref<Array>, int32_t>> constants_;
  std::unordered_map<TapeNode*, Value> leaves_;
  std::unordered_map<const TapeNode*, Value> outside_;  // see link_outside
  std::unordered_map<std::string, int32_t> lines_;
  std::vector<std::pair<Operand, Value>> unlimited_;        // each stack and its number of steps
  std::map<std::pair<int32_t, int32_t>, size_t> captured_;  // by node and output outside: the position in `captures`
  std::set<std::tuple<int32_t, int32_t, TypeGuard::Kind, int32_t>> guarded_;  // node, output, kind and dim of guards
  std::vector<uint64_t> sequences_;  // the tape's sequence number when each node was made
};

}  // namespace pg
