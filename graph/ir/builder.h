// GraphBuilder: the interpreter that writes programs. Applied ops become nodes, their results are symbols: arrays with
// a type and no memory. It serves twice: while a script is traced, and when a trace is replayed for the types of a
// call.
#pragma once
#include <functional>
#include <unordered_map>

#include "graph/ir/ir.h"
#include "tensor/context.h"

namespace pg {

class GraphBuilder : public Tracer {
 public:
  // kTrace keeps everything open that a run decides: modes, random keys, gradients, decompositions. kReplay resolves
  // it.
  enum class Stage { kTrace, kReplay };
  // With a parent it writes a closed body: what the parent knows becomes an input of the body when it is used.
  explicit GraphBuilder(Stage stage, GraphBuilder* parent = nullptr);

  Graph graph;
  std::vector<Operand> captures;  // of the parent; the body's inputs for them come in this order
  Values captured_values;         // the same as values of the parent, with their history

  Value add_input(const Type& type, std::string name = "");
  Value add_constant(const Value& value);  // equal arrays give one node
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
  Values gradient(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                  std::span<const Value> wanted, bool create_graph, uint64_t first) override;
  Value read_gradient(TapeNode& leaf) override;
  void write_gradient(TapeNode& leaf, Value gradient) override;

  // A kCond or kLoop: `node` but for its operands. `flows`: which outputs gradients flow through, while tracing.
  Values control(Context& ctx, Node node, std::span<const Value> inputs, std::span<const char> flows);

  // The nodes of another graph of the same kind, as they are, with these values in the place of its inputs; its
  // outputs.
  Values splice(Context& ctx, const Graph& graph, std::span<const Value> inputs);

  // The value as one to take gradients by: with its history where a run finds one, else a leaf.
  Value fresh_input(Context& ctx, const Value& value);

  // Says that the type of `stack` lacks its rows, of which there are `steps` (see LoopForm). Sums of such are loops.
  void mark_unlimited(const Value& stack, const Value& steps);

  // outputs = saved with the gradient that the closed graph `backward` (saved…, cotangents…) → one for each input
  // gives.
  Values custom(Context& ctx, std::string name, std::span<const Value> inputs, std::span<const Value> outputs,
                std::span<const Value> saved, std::shared_ptr<const Graph> backward);

  std::vector<Value> capture_inputs;  // the body's inputs, one a capture

  Value symbol(const Operand& operand) const;  // the array that stands for an output of a node

  // The leaf whose value is this symbol.
  void link_leaf(const Value& value, TapeNode* leaf);

  // Where the value is the outcome of a write: what the write stored.
  Value stored(const Value& value) const;

  // Notes that the script read this of a type.
  virtual void guard(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer);

  // Asked for each node of a trace; by default what the replay has set.
  virtual std::string position() { return parent_ ? parent_->position() : std::string(); }
  virtual Mode training_mode(Context& ctx) { return parent_ ? parent_->training_mode(ctx) : Mode::kAuto; }
  virtual Mode recording_mode(Context& ctx) { return parent_ ? parent_->recording_mode(ctx) : Mode::kAuto; }

  // Flags of nodes that a graph being replayed into this one has fixed; kAuto: as training_mode and recording_mode say.
  Mode imposed_training = Mode::kAuto, imposed_recording = Mode::kAuto;

  std::string_view imposed_name;  // what the script called the op in that graph
  int32_t current_line = -1;
  std::vector<Ref<Generator>> generators;  // by the index that random keys name
  // The key of the next `count` ticks of a generator.
  RandomKey take_ticks(const Ref<Generator>& generator, uint64_t count);
  // A body whose ticks are those of streams of its own (BodyStream).
  bool own_streams = false;
  // One for each generator that these bodies of a node take ticks of.
  std::vector<BodyStream> take_streams(std::initializer_list<const Graph*> bodies);

 protected:
  int32_t line_now();

 private:
  Values emit(Context& ctx, Node node);
  Values decompose(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs);
  Attrs with_random_key(Context& ctx, const OpDef& op, const Attrs& attrs);
  void record_path(Context& ctx, const Node& node, std::span<const Value> inputs, std::span<Value> outputs);

  Operand captured(const Value& value);
  const Value* steps_of(const Value& stack) const;
  Values add_rows(Context& ctx, const OpDef& add, std::span<Value> inputs, const Value& steps);
  size_t index_of(const Ref<Generator>& generator);

  Stage stage_;
  GraphBuilder* parent_;
  uint64_t id_;
  std::unordered_map<const Array*, std::pair<Ref<Array>, int32_t>> constants_;
  std::unordered_map<TapeNode*, Value> leaves_;
  std::unordered_map<std::string, int32_t> lines_;
  std::vector<std::pair<Operand, Value>> unlimited_;  // stacks and their steps
  std::vector<uint64_t> sequences_;                   // of the tape when each node was made
};

}  // namespace pg
