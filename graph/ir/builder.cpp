#include "graph/ir/builder.h"

#include <algorithm>
#include <atomic>

#include "graph/ir/history.h"
#include "graph/ir/outside.h"
#include "tensor/call.h"
#include "tensor/rule.h"
#include "tensor/device_table.h"

namespace pg {
namespace {

uint64_t next_builder() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Each output costs some kilobytes and tens of microseconds until the program runs, in a branch twice that.
constexpr size_t kMaxOutputs = 1 << 16;

bool any_requires_grad(std::span<const Value> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return requires_grad(v); });
}

}  // namespace

GraphBuilder::GraphBuilder(Stage stage, GraphBuilder* parent) : stage_(stage), parent_(parent), id_(next_builder()) {}

int32_t GraphBuilder::line_now(const char* raiser) {
  std::string text;
  if (stage_ == Stage::kReplay) {
    if (!raiser) return current_line;
    if (current_line >= 0) text = position_of(graph.lines[size_t(current_line)]);
    text.append(": ").append(raiser);
  } else {
    text = position();
  }
  if (text.empty()) return -1;
  if (!imposed_name.empty() && name_in(text).empty()) text.append(": ").append(imposed_name);
  const auto [at, added] = lines_.emplace(text, int32_t(graph.lines.size()));
  if (added) graph.lines.push_back(std::move(text));
  return at->second;
}

// Appends the node. Returns its outputs as symbols.
Values GraphBuilder::emit(Context& ctx, Node node) {
  const int32_t index = int32_t(graph.nodes.size());
  Values out;
  for (size_t k = 0; k < node.types.size(); ++k) {
    Ref<Array> array = Array::make(node.types[k]);
    array->symbol = {id_, index, int32_t(k)};
    out.emplace_back(std::move(array));
  }
  if (stage_ == Stage::kTrace) {
    node.training = imposed_training == Mode::kAuto ? training_mode(ctx) : imposed_training;
    node.recording = imposed_recording == Mode::kAuto ? recording_mode(ctx) : imposed_recording;
  }
  if (node.line < 0) node.line = line_now(ctx.raiser);
  sequences_.push_back(ctx.next_sequence);
  graph.nodes.push_back(std::move(node));
  return out;
}

Value GraphBuilder::symbol(const Operand& operand) const {
  Ref<Array> array = Array::make(graph.type(operand));
  array->symbol = {id_, operand.node, operand.output};
  return Value(std::move(array));
}

Value GraphBuilder::add_input(const Type& type, std::string name) {
  Node node;
  node.kind = NodeKind::kInput;
  node.types.push_back(type);
  node.name = std::move(name);
  const int32_t index = int32_t(graph.nodes.size());
  graph.inputs.push_back(index);
  Ref<Array> array = Array::make(type);
  array->symbol = {id_, index, 0};
  sequences_.push_back(sequences_.empty() ? 0 : sequences_.back());
  graph.nodes.push_back(std::move(node));
  return Value(std::move(array));
}

Value GraphBuilder::add_constant(const Value& value) {
  const auto found = constants_.find(value.array_ref().get());
  int32_t index = found == constants_.end() ? int32_t(graph.nodes.size()) : found->second.second;
  if (found == constants_.end()) {
    sequences_.push_back(sequences_.empty() ? 0 : sequences_.back());
    graph.nodes.push_back(constant_node(value.type(), value.detached()));
    constants_.emplace(value.array_ref().get(), std::make_pair(value.array_ref(), index));
  }
  Ref<Array> array = Array::make(value.type());
  array->symbol = {id_, index, 0};
  return Value(std::move(array));
}

Operand GraphBuilder::operand_of(const Value& value) {
  if (!value.defined()) return {};
  if (value.is_number()) return Operand::immediate(value.number());
  if (owns(value)) return symbol_of(value);
  if (knows(value)) return captured(value);
  if (!value.array().buffer) throw Error("a traced tensor is used after its trace");
  return symbol_of(add_constant(value));
}

Operand GraphBuilder::captured(const Value& value) {
  const Operand outside = parent_->operand_of(value);
  const auto [at, added] = captured_.emplace(std::pair(outside.node, outside.output), captures.size());
  if (added) {
    captures.push_back(outside);
    captured_values.push_back(value);
    capture_inputs.push_back(add_input(value.type()));
  }
  return symbol_of(capture_inputs[at->second]);
}

// In a trace a random key names a generator and the number of ticks that the run has taken of it before this op.
Attrs GraphBuilder::with_random_key(Context& ctx, const OpDef& op, const Attrs& attrs) {
  Attrs out = attrs.size() ? attrs : make_attrs(op);
  AttrValue& key = out[size_t(op.random_attr)];
  if (std::holds_alternative<RandomKey>(key)) return out;
  const auto* given = std::get_if<Ref<Generator>>(&key);
  key = take_ticks(given ? *given : ctx.generator, 1);
  return out;
}

size_t GraphBuilder::index_of(const Ref<Generator>& generator) {
  if (parent_) return parent_->index_of(generator);
  const size_t index = size_t(std::find(generators.begin(), generators.end(), generator) - generators.begin());
  if (index == generators.size()) generators.push_back(generator);
  if (graph.ticks.size() < generators.size()) graph.ticks.resize(generators.size());
  return index;
}

RandomKey GraphBuilder::take_ticks(const Ref<Generator>& generator, uint64_t count) {
  if (parent_ && !own_streams) return parent_->take_ticks(generator, count);
  const size_t index = index_of(generator);
  if (graph.ticks.size() <= index) graph.ticks.resize(index + 1);
  const RandomKey key{index, graph.ticks[index]};
  graph.ticks[index] += count;
  return key;
}

std::vector<BodyStream> GraphBuilder::take_streams(std::span<const std::shared_ptr<const Graph>> bodies) {
  std::vector<uint64_t> taken;
  for (const auto& body : bodies) {
    if (taken.size() < body->ticks.size()) taken.resize(body->ticks.size());
    for (size_t g = 0; g < body->ticks.size(); ++g) taken[g] += body->ticks[g];
  }
  const GraphBuilder* root = this;
  while (root->parent_) root = root->parent_;
  std::vector<BodyStream> streams;
  for (size_t g = 0; g < taken.size(); ++g)
    if (taken[g] > 0) streams.push_back({g, take_ticks(root->generators[g], 1).tick});
  return streams;
}

Values GraphBuilder::decompose(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
  Values out;
  const bool own_rule = op.differentiable() || op.has(kNoGrad);
  {
    ScopedFlag quiet(ctx.recording, ctx.recording && !own_rule);
    out = decomposed(ctx, op, inputs, attrs);
  }
  if (!own_rule) return out;
  for (Value& v : out) v = v.detached();
  record(ctx, op, inputs, attrs, out);
  return out;
}

// While tracing, the tape only records which values backward reaches. Its rules run when the trace is replayed.
void GraphBuilder::record_path(Context& ctx, const Node& node, std::span<const Value> inputs,
                               std::span<Value> outputs) {
  if (!ctx.recording || (node.op && node.op->has(kNoGrad))) return;
  if (std::none_of(outputs.begin(), outputs.end(), [](const Value& v) { return is_float(v.dtype()); })) return;
  record_custom(ctx, node.op ? node.op->name : "gradient", inputs, outputs, nullptr);
}

void GraphBuilder::mark_unlimited(const Value& stack, const Value& steps) {
  unlimited_.emplace_back(symbol_of(stack), steps);
}

const Value* GraphBuilder::steps_of(const Value& stack) const {
  if (!stack.is_array() || !owns(stack)) return nullptr;
  for (const auto& [operand, steps] : unlimited_)
    if (operand == symbol_of(stack)) return &steps;
  return nullptr;
}

// Adds two stacks of unknown length, row by row, in a loop.
Values GraphBuilder::add_rows(Context& ctx, const OpDef& add, std::span<Value> inputs, const Value& steps) {
  GraphBuilder body(stage_);
  Values rows;
  const Type row = row_type(inputs[0].type());
  body.add_input(Type{DType::kInt64, {}, {}});
  for (int k = 0; k < 2; ++k) rows.push_back(body.add_input(row));
  {
    const ScopedFlag quiet(ctx.recording, false);
    body.graph.outputs.push_back(body.operand_of(body.apply(ctx, add, rows, {})[0]));
  }
  LoopForm form;
  form.slices = 2;
  form.counted = true;
  Control loop = Control::loop_of("sum of rows", form);
  loop.bodies.push_back(std::make_shared<const Graph>(std::move(body.graph)));
  const Value operands[3] = {steps, inputs[0], inputs[1]};
  Values out{control(ctx, loop, operands, {})[1]};
  mark_unlimited(out[0], steps);
  record(ctx, add, inputs, {}, out);
  return out;
}

Values GraphBuilder::apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& given) {
  const bool tracing = stage_ == Stage::kTrace;
  if (!unlimited_.empty() && &op == &op_named<"add">() && inputs.size() == 2)
    if (const Value* steps = steps_of(inputs[0])) return add_rows(ctx, op, inputs, Value(*steps));
  if (op.has(kDynamicShape))
    fail(op.name,
         "its output's shape depends on values, so it cannot be part of a graph; use where, masked_fill or a sum over "
         "the mask, or call it outside of the hybridized function");
  Node node;
  node.op = &op;
  node.attrs = tracing && op.random_attr >= 0 ? with_random_key(ctx, op, given) : given;
  const Attrs* inferred = &node.attrs;
  Attrs resolved;
  if (tracing && op.training_attr >= 0 && node.attrs[size_t(op.training_attr)].index() == 0) {
    resolved = node.attrs;
    resolved[size_t(op.training_attr)] = ctx.training;
    inferred = &resolved;
  }
  SmallVector<Type, 2> types;
  infer_types(op, inputs, *inferred, types);
  if (tracing && types.size() > kMaxOutputs)
    fail(op.name,
         "{} outputs are more than an op in a graph can have ({}); use larger pieces, index what is needed, or call it "
         "outside of the hybridized function",
         types.size(), kMaxOutputs);
  if (!tracing && op.decompose) {
    const bool for_gradient = ctx.recording && !op.differentiable() && !op.has(kNoGrad) && any_requires_grad(inputs);
    if (for_gradient || (!op.view && !kernel_row(op, device_of(inputs, types), inputs).fn))
      return decompose(ctx, op, inputs, node.attrs);
  }
  for (const Value& v : inputs) node.inputs.push_back(operand_of(v));
  for (const Type& type : types) node.types.push_back(type);
  Node kept;
  kept.op = &op;
  const Attrs attrs = node.attrs;
  Values out = emit(ctx, std::move(node));
  if (tracing && op.has(kListOutput))
    graph.guards.push_back(
        {Operand::of(graph.nodes.size() - 1), TypeGuard::kOutputs, 0, int64_t(out.size()), graph.nodes.back().line});
  if (tracing)
    record_path(ctx, kept, inputs, out);
  else
    record(ctx, op, inputs, attrs, out);
  return out;
}

Value GraphBuilder::filled(Context& ctx, const Type& type, double number) {
  const OpDef& op = op_named<"full">();
  Values none;
  const ScopedFlag quiet(ctx.recording, false);
  return apply(
      ctx, op, none,
      make_attrs(op,
                 {{"shape", ints(type.shape)}, {"value", number}, {"dtype", type.dtype}, {"device", type.device}}))[0];
}

Value GraphBuilder::detach(Context& ctx, const Value& value) {
  if (!value.is_array() || stage_ == Stage::kReplay) return value.detached();
  Node node;
  node.kind = NodeKind::kDetach;
  node.inputs.push_back(operand_of(value));
  node.types.push_back(value.type());
  return emit(ctx, std::move(node))[0];
}

Value GraphBuilder::leaf(Context& ctx, const Value& value, TapeNode* leaf) {
  Node node;
  node.kind = NodeKind::kLeaf;
  node.req = leaf->req;
  node.inputs.push_back(operand_of(value));
  node.types.push_back(value.type());
  Value out = emit(ctx, std::move(node))[0];
  link_leaf(out, leaf);
  out.link(leaf, 0);
  return out;
}

Value GraphBuilder::write(Context& ctx, const std::string& op, const Value& old, const Value& now) {
  const bool leaf = is_leaf(old.node());
  if (op.empty() && !leaf) return now;
  Node node;
  node.kind = NodeKind::kWrite;
  node.name = op;
  node.inputs = {operand_of(now), operand_of(old)};
  node.types.push_back(now.type());
  Value out = emit(ctx, std::move(node))[0];
  if (leaf) link_leaf(out, old.node());
  const Value& history = leaf ? old : now;
  out.link(history.node(), history.node_output());
  return out;
}

Value GraphBuilder::stored(const Value& value) const {
  if (!owns(value)) return value;
  const Node& node = graph.nodes[size_t(symbol_of(value).node)];
  if (node.kind != NodeKind::kWrite) return value;
  Value out = symbol(node.inputs[0]);
  out.link(value.node(), value.node_output());
  return out;
}

Value GraphBuilder::fresh_input(Context& ctx, const Value& value) {
  Node node;
  node.kind = NodeKind::kLeaf;
  node.req = GradReq::kWrite;
  node.create_graph = true;
  node.inputs.push_back(operand_of(value));
  node.types.push_back(value.type());
  Values out = emit(ctx, std::move(node));
  record_path(ctx, Node(), std::span(&value, 1), out);
  if (!out[0].has_node()) {
    const Ref<TapeNode> leaf = make_leaf(value.type(), GradReq::kWrite);
    link_leaf(out[0], leaf.get());
    out[0].link(leaf.get(), 0);
  }
  return out[0];
}

void GraphBuilder::link_leaf(const Value& value, TapeNode* leaf) { leaves_[leaf] = value; }

void GraphBuilder::refuse(const std::string& why, const std::string& error) {
  if (parent_) parent_->refuse(why, error);
  throw Error(error);
}

constexpr const char* kFlowsOut = "a gradient in it flows through a tensor that was computed before the call";
constexpr const char* kOutside =
    "this gradient flows through a tensor that was computed before the traced function; compute the tensor in it, or "
    "take the gradient outside of it";

Value GraphBuilder::value_of(TapeNode* leaf) {
  const auto found = leaves_.find(leaf);
  if (found == leaves_.end() && parent_) return parent_->value_of(leaf);
  if (found == leaves_.end()) refuse(kFlowsOut, kOutside);
  return found->second;
}

void GraphBuilder::link_outside(Value& symbol, const Value& outside) {
  const Ref<TapeNode> end(new TapeNode);
  end->leaf = true;
  if (is_frozen(outside)) end->req = GradReq::kNull;
  outside_.emplace(end.get(), outside);
  symbol.link(end.get(), 0);
}

const Value* GraphBuilder::outside_of(const TapeNode* node) const {
  const auto found = outside_.find(node);
  return found != outside_.end() ? &found->second : parent_ ? parent_->outside_of(node) : nullptr;
}

// Every node of the tape that the builder makes comes after the graph's node for it. Inputs before that have no number.
void GraphBuilder::check_inside(std::span<const Value> heads, std::span<const Value> wanted, uint64_t first) {
  const auto own = std::find_if(sequences_.begin(), sequences_.end(), [](uint64_t n) { return n > 0; });
  const uint64_t start = own == sequences_.end() ? ~uint64_t(0) : *own;
  const auto outside = [this](const TapeNode* node) { return outside_of(node); };
  if (leads_outside(heads, wanted, {start, first, outside})) refuse(kFlowsOut, kOutside);
}

Values GraphBuilder::gradient(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                              std::span<const Value> wanted, bool create_graph, uint64_t first) {
  Node node;
  node.kind = NodeKind::kGradient;
  node.heads = int32_t(heads.size());
  node.create_graph = create_graph;
  node.first = int32_t(std::lower_bound(sequences_.begin(), sequences_.end(), first) - sequences_.begin());
  Values all;
  for (const Value& v : heads) all.push_back(v);
  for (size_t i = 0; i < heads.size(); ++i) all.push_back(i < cotangents.size() ? cotangents[i] : Value());
  for (const Value& v : wanted) all.push_back(v), node.types.push_back(v.type());
  for (const Value& v : all) node.inputs.push_back(operand_of(v));
  Values out = emit(ctx, std::move(node));
  Values linked;
  for (const Value& v : all) linked.push_back(v.defined() ? v : Value(0.0));
  ScopedFlag recording(ctx.recording, create_graph);
  record_path(ctx, Node(), linked, out);
  return out;
}

Value GraphBuilder::read_gradient(TapeNode& leaf) { return leaf.grad->value; }

void GraphBuilder::write_gradient(TapeNode& leaf, Value gradient) {
  leaf.grad->value = std::move(gradient);
  leaf.fresh = true;
}

Values GraphBuilder::control(Context& ctx, const Control& control, std::span<const Value> inputs,
                             std::span<const char> flows) {
  Node node;
  node.op = control.op;
  node.attrs = control.attrs();
  node.line = control.line;
  SmallVector<Type, 2> types;
  infer_types(*node.op, inputs, node.attrs, types);
  for (const Type& type : types) node.types.push_back(type);
  for (const Value& v : inputs) node.inputs.push_back(operand_of(v));
  auto behind = std::make_shared<std::vector<std::vector<int32_t>>>();
  Histories histories;
  if (ctx.recording)
    for (size_t k = 0; k < flows.size(); ++k)
      if (flows[k]) behind->push_back(origins_among(histories.operands_behind(control, int32_t(k)), inputs));
  Values out = emit(ctx, std::move(node));
  if (stage_ == Stage::kReplay) return out;
  Values reached;
  for (size_t k = 0; k < flows.size(); ++k)
    if (flows[k]) reached.push_back(out[k]);
  if (reached.size() == 0) return out;
  record_path(ctx, Node(), inputs, reached);
  for (const Value& v : reached)
    if (v.has_node() && ctx.recording) v.node()->behind = behind;
  size_t next = 0;
  for (size_t k = 0; k < flows.size(); ++k)
    if (flows[k]) out[k] = reached[next++];
  return out;
}

Values GraphBuilder::splice(Context& ctx, const Graph& from, std::span<const Value> inputs) {
  const int32_t first_line = int32_t(graph.lines.size());
  graph.lines.insert(graph.lines.end(), from.lines.begin(), from.lines.end());
  std::vector<Operand> given(from.nodes.size());
  std::vector<int32_t> moved(from.nodes.size() + 1, -1);
  for (size_t k = 0; k < from.inputs.size(); ++k) given[size_t(from.inputs[k])] = operand_of(inputs[k]);
  auto place = [&](Operand operand) {
    if (!operand.is_node()) return operand;
    const size_t at = size_t(operand.node);
    if (from.nodes[at].kind == NodeKind::kInput) return given[at];
    operand.node = moved[at];
    return operand;
  };
  for (size_t i = 0; i < from.nodes.size(); ++i) {
    moved[i] = int32_t(graph.nodes.size());
    if (from.nodes[i].kind == NodeKind::kInput) continue;
    Node& node = graph.nodes.emplace_back(from.nodes[i]);
    for (Operand& operand : node.inputs) operand = place(operand);
    if (node.line >= 0) node.line += first_line;
    if (node.first > 0) node.first = moved[size_t(std::min<int32_t>(node.first, int32_t(i)))];
    sequences_.push_back(ctx.next_sequence);
  }
  for (TypeGuard guard : from.guards) {
    guard.of = place(guard.of);
    if (guard.line >= 0) guard.line += first_line;
    if (guard.of.is_node()) graph.guards.push_back(guard);
  }
  if (graph.ticks.size() < from.ticks.size()) graph.ticks.resize(from.ticks.size());
  Values out;
  for (const Operand& output : from.outputs) out.push_back(symbol(place(output)));
  return out;
}

Values GraphBuilder::custom(Context& ctx, std::string name, std::span<const Value> inputs,
                            std::span<const Value> outputs, std::span<const Value> saved,
                            std::shared_ptr<const Graph> backward) {
  Node node;
  node.kind = NodeKind::kCustom;
  node.name = std::move(name);
  node.heads = int32_t(inputs.size());
  Values all;
  for (std::span<const Value> list : {inputs, outputs, saved})
    for (const Value& v : list) all.push_back(v);
  for (const Value& v : all) node.inputs.push_back(operand_of(v));
  for (const Value& v : outputs) node.types.push_back(v.type());
  node.body = std::move(backward);
  Values out = emit(ctx, std::move(node));
  record_path(ctx, Node(), inputs, out);
  return out;
}

void GraphBuilder::guard(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer) {
  if (!owns(value)) return parent_ ? parent_->guard(value, kind, dim, answer) : void();
  const Operand of = symbol_of(value);
  if (guarded_.emplace(of.node, of.output, kind, dim).second)
    graph.guards.push_back({of, kind, dim, answer, line_now()});
}

}  // namespace pg
