// Branches and loops in specialize(): a body is specialized as a program of its own, and the gradient of a branch or
// loop is a branch or loop over the bodies' gradients, applied here like any other, so it has gradients in turn.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/specialize/specializer.h"
#include "tensor/rule.h"

namespace pg {
namespace {

void append(Values& to, std::span<const Value> more) {
  for (const Value& v : more) to.push_back(v);
}

// The parts of a loop's operands and of what belongs to them in its body; the condition is closed.
struct Layout {
  explicit Layout(const Node& node)
      : flag(node.loop.conditional),
        first(size_t(node.loop.first_slice(false))),
        slices(size_t(node.loop.slices)),
        carries(size_t(node.loop.carries)),
        captures(node.inputs.size() - first - slices - carries) {}
  size_t flag, first, slices, carries, captures;

  size_t body_input(size_t operand) const { return operand - first + 1; }
  size_t operand(size_t body_input) const { return body_input - 1 + first; }
  bool is_slice(size_t body_input) const { return body_input >= 1 && body_input < 1 + slices; }
  bool is_carry(size_t body_input) const { return body_input >= 1 + slices && body_input < 1 + slices + carries; }
  size_t carry(size_t k) const { return 1 + slices + k; }  // as body input
};

const Type& index_type() {
  static const Type type{DType::kInt64, {}, {}};
  return type;
}

// Uses another interpreter, without recording, for the extent of a C++ scope.
class Writing {
 public:
  Writing(Context& ctx, Interpreter& interpreter) : ctx_(ctx), before_(ctx.interpreter), quiet_(ctx.recording, false) {
    ctx.interpreter = &interpreter;
  }
  ~Writing() { ctx_.interpreter = before_; }
  Writing(const Writing&) = delete;

 private:
  Context& ctx_;
  Interpreter* before_;
  ScopedFlag quiet_;
};

// Only the gradients of a joint program.
Graph gradients_of(const Specialized& joint) {
  Graph graph = joint.graph;
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.begin() + ptrdiff_t(joint.outputs));
  return without_dead_nodes(without_effects(graph));
}

int64_t rows_of(const Value& v) { return v.shape()[0]; }

// A value of as many dims as there can be has no room for the dim of steps: it is kept flat.
bool has_full_rank(const Type& type) { return type.shape.size() == kMaxRank; }

Value reshaped(Context& ctx, const Value& v, const Dims& shape) {
  return call<"reshape">(Var(ctx, v), {{"shape", ints(shape)}}).value();
}

Values inputs_of(GraphBuilder& builder, const Graph& graph) {
  Values inputs;
  for (int32_t k : graph.inputs) inputs.push_back(builder.add_input(graph.nodes[size_t(k)].types[0]));
  return inputs;
}

Graph finished(GraphBuilder& builder, const Values& outputs, const Graph& from) {
  for (const Value& v : outputs) builder.graph.outputs.push_back(builder.operand_of(v));
  builder.graph.ticks = from.ticks;
  return std::move(builder.graph);
}

// The graph with those of its outputs flat that have full rank, from this one on.
Graph with_flat_outputs(Context& ctx, Graph graph, size_t from) {
  const auto is_full = [&](const Operand& output) { return has_full_rank(graph.type(output)); };
  if (std::none_of(graph.outputs.begin() + ptrdiff_t(from), graph.outputs.end(), is_full)) return graph;
  GraphBuilder builder(GraphBuilder::Stage::kReplay);
  const Writing writing(ctx, builder);
  Values out = builder.splice(ctx, graph, inputs_of(builder, graph));
  for (size_t k = from; k < out.size(); ++k)
    if (has_full_rank(out[k].type())) out[k] = reshaped(ctx, out[k], {-1});
  return finished(builder, out, graph);
}

// The graph which takes those of these inputs flat that have full rank.
Graph with_flat_inputs(Context& ctx, Graph graph, std::span<const size_t> places) {
  const auto type_at = [&](size_t place) -> const Type& { return graph.nodes[size_t(graph.inputs[place])].types[0]; };
  if (std::none_of(places.begin(), places.end(), [&](size_t place) { return has_full_rank(type_at(place)); }))
    return graph;
  GraphBuilder builder(GraphBuilder::Stage::kReplay);
  const Writing writing(ctx, builder);
  Values inputs;
  for (size_t k = 0; k < graph.inputs.size(); ++k) {
    Type type = type_at(k);
    const Dims shape = type.shape;
    const bool flat = has_full_rank(type) && std::find(places.begin(), places.end(), k) != places.end();
    if (flat) type.shape = {numel(shape)};
    const Value input = builder.add_input(type);
    inputs.push_back(flat ? reshaped(ctx, input, shape) : input);
  }
  return finished(builder, builder.splice(ctx, graph, inputs), graph);
}

}  // namespace

// A branch or loop as it was applied, which its gradient needs to know.
struct Specializer::Applied {
  Node node;                                         // as a trace has it, but for a closed condition
  Values in;                                         // with their history
  std::vector<Signature> signatures;                 // of the bodies, with the flows that were found
  std::vector<std::vector<char>> flows;              // by body: which outputs gradients flow through
  std::vector<std::shared_ptr<const Graph>> bodies;  // specialized
  std::vector<size_t> flowing;                       // outputs of the node that gradients flow through
  size_t first = 0;  // the operand that is the bodies' first input; of loops their second
  int32_t at = -1;   // the node in the program
};

Signature Specializer::body_signature(const Graph& body) const {
  Signature signature;
  signature.recording = ctx_.recording;
  signature.training = ctx_.training;
  signature.types = SmallVector<Type, 8>(body.inputs.size());
  signature.flows = SmallVector<Flow, 8>(body.inputs.size());
  return signature;
}

Values Specializer::emit_control(std::shared_ptr<Applied> applied,
                                 Values (Specializer::*gradient)(const Applied&, std::span<const Value>)) {
  Node node = applied->node;
  node.bodies = applied->bodies;
  node.training = node.recording = Mode::kAuto;
  Values out = builder_.control(ctx_, node, applied->in, {});
  applied->at = builder_.symbol_of(out[0]).node;
  if (node.kind == NodeKind::kLoop && node.loop.limit < 0)
    for (size_t k = size_t(1 + node.loop.carries); k < out.size(); ++k) builder_.mark_unlimited(out[k], out[0]);
  if (!ctx_.recording || applied->flowing.empty()) return out;
  Values linked(applied->in.size()), heads;
  for (size_t i = applied->first; i < applied->in.size(); ++i)
    if (is_float(applied->in[i].dtype())) linked[i] = applied->in[i];
  for (size_t k : applied->flowing) heads.push_back(out[k]);
  record_custom(ctx_, node.name, linked, heads,
                [this, applied, gradient](Context&, TapeNode&, std::span<const Value> dys) {
                  return (this->*gradient)(*applied, dys);
                });
  for (size_t k = 0; k < heads.size(); ++k) out[applied->flowing[k]] = heads[k];
  return out;
}

// Branches
// -------------------------------------------------------------------------------------------------------------------

Values Specializer::cond(const Node& node, const Values& in) {
  auto applied = std::make_shared<Applied>();
  applied->node = node;
  applied->in = in;
  applied->first = 1;
  std::vector<char> flowing(node.types.size());
  for (const auto& trace : node.bodies) {
    Signature& signature = applied->signatures.emplace_back(body_signature(*trace));
    for (size_t k = 1; k < in.size(); ++k) {
      signature.types[k - 1] = in[k].type();
      signature.flows[k - 1] = requires_grad(in[k]) ? Flow::kHistory : Flow::kNone;
    }
    Specializer body(*trace, signature, {false, {}});
    applied->bodies.push_back(std::make_shared<const Graph>(body.run().graph));
    applied->flows.push_back(body.flows);
    for (size_t k = 0; k < flowing.size(); ++k) flowing[k] |= body.flows[k];
  }
  const Graph &a = *applied->bodies[0], &b = *applied->bodies[1];
  for (size_t k = 0; k < node.types.size(); ++k) {
    const Type &x = a.type(a.outputs[k]), &y = b.type(b.outputs[k]);
    if (!(x == y))
      throw Error(fmt::format("cond: the branches answer different types (result {}: then_f {}, else_f {})", k + 1,
                              to_string(x), to_string(y)));
    applied->node.types[k] = x;
    if (flowing[k]) applied->flowing.push_back(k);
  }
  if (node.types.empty()) {  // only effects
    Node effects = node;
    effects.bodies = applied->bodies;
    builder_.control(ctx_, effects, in, {});
    return {};
  }
  return emit_control(applied, &Specializer::cond_gradient);
}

// A cond on the same predicate whose branches run the branch again and go back through it.
Values Specializer::cond_gradient(const Applied& applied, std::span<const Value> dys) {
  const Node& node = applied.node;
  const size_t captures = node.inputs.size() - 1;
  Heads heads;
  heads.chosen.resize(node.types.size());
  Values in = applied.in;
  std::vector<size_t> places(node.types.size());  // of an output's cotangent among the captures
  for (size_t k = 0; k < applied.flowing.size(); ++k) {
    if (!dys[k].defined()) continue;
    heads.chosen[applied.flowing[k]] = true;
    places[applied.flowing[k]] = in.size() - 1;
    in.push_back(dys[k]);
  }
  std::vector<Specialized> joints;
  std::vector<char> wanted(captures);
  for (size_t b = 0; b < 2; ++b) {
    joints.push_back(Specializer(*node.bodies[b], applied.signatures[b], heads).run());
    for (int32_t k : joints[b].wanted) wanted[size_t(k)] = true;
  }
  Node gradient = node;
  gradient.bodies.clear();
  gradient.types.clear();
  for (size_t k = 0; k < captures; ++k)
    if (wanted[k]) gradient.types.push_back(in[1 + k].type());
  if (gradient.types.empty()) return Values(applied.in.size());
  for (size_t b = 0; b < 2; ++b) {
    const Specialized& joint = joints[b];
    GraphBuilder builder(GraphBuilder::Stage::kReplay);
    const Writing writing(ctx_, builder);
    Values inputs, arguments, found;
    for (size_t k = 1; k < in.size(); ++k) inputs.push_back(builder.add_input(in[k].type()));
    for (size_t k = 0; k < captures; ++k) arguments.push_back(inputs[k]);
    for (int32_t head : joint.heads) arguments.push_back(inputs[places[size_t(head)]]);
    if (!joint.heads.empty()) found = builder.splice(ctx_, gradients_of(joint), arguments);
    for (size_t k = 0; k < captures; ++k) {
      if (!wanted[k]) continue;
      const auto at = std::find(joint.wanted.begin(), joint.wanted.end(), int32_t(k));
      const Value value = at == joint.wanted.end() ? builder.filled(ctx_, in[1 + k].type(), 0)
                                                   : found[size_t(at - joint.wanted.begin())];
      builder.graph.outputs.push_back(builder.operand_of(value));
    }
    builder.graph.ticks = applied.bodies[b]->ticks;
    gradient.bodies.push_back(std::make_shared<const Graph>(std::move(builder.graph)));
  }
  while (gradient.inputs.size() < in.size()) gradient.inputs.push_back({});
  const Values out = cond(gradient, in);
  Values grads(applied.in.size());
  size_t next = 0;
  for (size_t k = 0; k < captures; ++k)
    if (wanted[k]) grads[1 + k] = out[next++];
  return grads;
}

// Loops
// ----------------------------------------------------------------------------------------------------------------------

// Makes the second body of a conditional loop of a trace an operand, what it says at first, and the first output of the
// body.
void Specializer::close_condition(Node& node, Values& in) {
  const std::shared_ptr<const Graph> body = node.bodies[0], condition = node.bodies[1];
  const size_t slices = size_t(node.loop.slices), carries = size_t(node.loop.carries),
               first = size_t(node.loop.counted);
  Values at_first{zeros(index_type())};
  append(at_first, std::span(in).subspan(first + slices));
  const Value flag = interpret(*condition, at_first)[0];
  Values with;
  append(with, std::span(in).subspan(0, first));
  with.push_back(flag);
  append(with, std::span(in).subspan(first));
  in = with;
  GraphBuilder joined(GraphBuilder::Stage::kTrace);
  Values inputs, next;
  for (int32_t k : body->inputs) inputs.push_back(joined.add_input(body->nodes[size_t(k)].types[0]));
  const Values out = joined.splice(ctx_, *body, inputs);
  next.push_back(inputs[0]);
  append(next, std::span(out).subspan(0, carries));
  append(next, std::span(inputs).subspan(1 + slices + carries));
  joined.graph.outputs.push_back(joined.operand_of(joined.splice(ctx_, *condition, next)[0]));
  for (const Value& v : out) joined.graph.outputs.push_back(joined.operand_of(v));
  node.bodies = {std::make_shared<const Graph>(std::move(joined.graph))};
  node.inputs.push_back({});  // the flag
}

namespace {

// The rows of the slices, which must be as many.
int64_t count_rows(const Node& node, const Values& in, const Layout& at) {
  const int64_t rows = rows_of(in[at.first]);
  for (size_t k = 1; k < at.slices; ++k)
    if (rows_of(in[at.first + k]) != rows)
      throw Error(fmt::format("{}: the data differ in length: {} and {}", node.name, rows, rows_of(in[at.first + k])));
  return rows;
}

void check_carry(const Node& node, size_t k, const Type& before, const Type& after) {
  if (!(before == after))
    throw Error(fmt::format("{}: the body changed the type of state {} (expected {}, got {})", node.name, k + 1,
                            to_string(before), to_string(after)));
}

}  // namespace

Values Specializer::loop(Node node, Values in) {
  if (node.loop.conditional && node.bodies.size() == 2) close_condition(node, in);
  if (node.loop.checkpoint > 0) return checkpointed(node, in);
  const Layout at(node);
  LoopForm& form = node.loop;
  if (at.slices > 0 && !form.conditional && !form.counted) form.limit = count_rows(node, in, at);
  const Graph& trace = *node.bodies[0];
  Signature signature = body_signature(trace);
  signature.types[0] = index_type();
  for (size_t k = at.first; k < in.size(); ++k) {
    const size_t input = at.body_input(k);
    signature.types[input] = at.is_slice(input) ? row_type(in[k].type()) : in[k].type();
    signature.flows[input] = requires_grad(in[k]) && is_float(in[k].dtype()) ? Flow::kHistory : Flow::kNone;
  }
  auto applied = std::make_shared<Applied>();
  applied->first = at.first;
  std::vector<char> flows;
  for (bool again = true; again;) {  // until no further carry turns out to depend on what gradients flow to
    again = false;
    Specializer replay(trace, signature, {false, {}});
    const Graph body = replay.run().graph;
    flows = replay.flows;
    for (size_t k = 0; k < at.carries; ++k) {
      const size_t input = at.carry(k);
      check_carry(node, k, signature.types[input], body.type(body.outputs[at.flag + k]));
      if (flows[at.flag + k] && signature.flows[input] == Flow::kNone)
        signature.flows[input] = Flow::kHistory, again = true;
    }
    applied->bodies = {std::make_shared<const Graph>(body)};
  }
  const Graph& body = *applied->bodies[0];
  node.types.clear();
  node.types.push_back(index_type());
  for (size_t k = at.flag; k < body.outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k]);
    node.types.push_back(k - at.flag < at.carries ? type : stack_type(type, std::max<int64_t>(form.limit, 0)));
    // In no steps at all a carry is what it was.
    const bool passes = k >= at.flag && k < at.flag + at.carries &&
                        requires_grad(in[at.operand(at.carry(k - at.flag))]) &&
                        (form.conditional || form.counted || form.limit == 0) && is_float(type.dtype);
    if (flows[k] || passes) applied->flowing.push_back(1 + k - at.flag);
  }
  applied->node = std::move(node);
  applied->in = std::move(in);
  applied->signatures = {signature};
  applied->flows = {flows};
  return emit_control(applied, &Specializer::loop_gradient);
}

// Has the loop at a node of the program give out what backward wants of each step: the outputs of forward after the
// first `outputs`, which are those of the body.
void Specializer::keep_for_backward(int32_t at, Graph forward, size_t outputs) {
  Node& node = builder_.graph.nodes[size_t(at)];
  const size_t flag = node.loop.conditional, had = flag + node.types.size() - 1;
  for (size_t k = outputs; k < forward.outputs.size(); ++k)
    node.types.push_back(stack_type(forward.type(forward.outputs[k]), std::max<int64_t>(node.loop.limit, 0)));
  if (had > outputs) {  // it has given out more before
    const Graph before = *node.bodies[0];
    GraphBuilder both(GraphBuilder::Stage::kReplay);
    const Values inputs = inputs_of(both, before);
    Values out = both.splice(ctx_, before, inputs);
    const Values more = both.splice(ctx_, without_effects(forward), inputs);
    append(out, std::span(more).subspan(outputs));
    forward = finished(both, out, before);
  }
  node.bodies = {std::make_shared<const Graph>(std::move(forward))};
}

// What a step back is computed from: inputs of the body that it reads, residuals, cotangents.
struct Specializer::StepBack {
  Graph graph;
  std::vector<int32_t> kept;
  Values residuals;  // stacks
  Values carries;    // stacks of what the steps took as carries; defined where they are kept
};

// For gradients that have gradients: the loop again, as one that they flow through, and steps back that compute all
// anew.
Specializer::StepBack Specializer::step_back_again(const Applied& applied, const Specialized& joint) {
  const Layout at(applied.node);
  StepBack step;
  std::vector<size_t> stacked;
  for (size_t k = 0; k < 1 + at.slices + at.carries + at.captures; ++k) step.kept.push_back(int32_t(k));
  Node again = applied.node;
  Graph extended = without_effects(*applied.node.bodies[0]);
  const size_t outputs = extended.outputs.size();
  for (size_t k = 0; k < at.carries; ++k) {
    stacked.push_back(at.carry(k));
    extended.outputs.push_back(Operand::of(size_t(extended.inputs[at.carry(k)])));
  }
  step.graph = with_flat_inputs(ctx_, gradients_of(joint), stacked);
  again.bodies = {std::make_shared<const Graph>(with_flat_outputs(ctx_, std::move(extended), outputs))};
  const Values out = loop(again, applied.in);
  append(step.carries, std::span(out).subspan(out.size() - at.carries));
  return step;
}

// The loop as it stands in the program gives out what split() chooses to keep.
Specializer::StepBack Specializer::step_back_kept(const Applied& applied, Specialized joint) {
  const Layout at(applied.node);
  PassOptions whole;
  whole.kernels = false;
  joint.graph = optimize(std::move(joint.graph), whole);
  Split halves = split(joint, applied.node.loop.recompute);
  StepBack step;
  step.kept = std::move(halves.kept);
  step.carries = Values(at.carries);
  const size_t residuals = halves.forward.outputs.size() - joint.outputs;
  std::vector<size_t> stacked;  // inputs of a step back
  for (size_t i = 0; i < step.kept.size(); ++i) {
    if (!at.is_carry(size_t(step.kept[i]))) continue;
    halves.forward.outputs.push_back(Operand::of(size_t(halves.forward.inputs[size_t(step.kept[i])])));
    stacked.push_back(i);
  }
  for (size_t k = 0; k < residuals; ++k) stacked.push_back(step.kept.size() + k);
  step.graph = with_flat_inputs(ctx_, std::move(halves.backward), stacked);
  size_t next = builder_.graph.nodes[size_t(applied.at)].types.size();
  keep_for_backward(applied.at, with_flat_outputs(ctx_, std::move(halves.forward), joint.outputs), joint.outputs);
  for (size_t k = 0; k < residuals; ++k) step.residuals.push_back(builder_.symbol({applied.at, int32_t(next++), 0}));
  for (int32_t k : step.kept)
    if (at.is_carry(size_t(k)))
      step.carries[size_t(k) - at.carry(0)] = builder_.symbol({applied.at, int32_t(next++), 0});
  return step;
}

// A loop the other way round over what the steps kept. It carries the cotangents of the carries, and the sums of the
// gradients of the captures; it stacks the gradients of the slices.
class Specializer::ReverseLoop {
 public:
  ReverseLoop(const Applied& applied, const Specialized& joint, const StepBack& step, const Values& cotangents)
      : applied_(applied),
        at_(applied.node),
        joint_(joint),
        step_(step),
        cotangents_(cotangents),
        cotangent_of_(at_.carries, -1) {}

  void gather(Specializer& replay) {
    for (int32_t k : step_.kept) {
      const size_t input = size_t(k);
      if (at_.is_slice(input))
        slices_.push_back(outer(input));
      else if (at_.is_carry(input))
        slices_.push_back(step_.carries[input - at_.carry(0)]);
      else if (k > 0)
        captures_.push_back(outer(input));
    }
    append(slices_, step_.residuals);
    for (int32_t head : joint_.heads)
      if (!is_carried(head)) slices_.push_back(cotangents_[size_t(head)]);
    for (size_t k = 0; k < at_.carries; ++k) {
      if (place_of(at_.carry(k)) < 0 && !is_head(at_.flag + k) && !cotangents_[at_.flag + k].defined()) continue;
      cotangent_of_[k] = int32_t(carries_.size());
      const Value& dy = cotangents_[at_.flag + k];
      carries_.push_back(dy.defined() ? dy : replay.zeros(outer(at_.carry(k)).type()));
    }
    for (size_t input = at_.carry(at_.carries); input < applied_.signatures[0].types.size(); ++input) {
      if (place_of(input) < 0) continue;
      summed_.push_back(input);
      carries_.push_back(replay.zeros(outer(input).type()));
    }
  }

  Node node(Context& ctx) const {
    Node node;
    node.kind = NodeKind::kLoop;
    node.name = applied_.node.name;
    node.line = applied_.node.line;
    node.streams = applied_.node.streams;
    node.loop = applied_.node.loop;
    node.loop.counted = applied_.node.loop.conditional || applied_.node.loop.counted;
    node.loop.conditional = false;
    node.loop.reverse = !applied_.node.loop.reverse;
    node.loop.slices = int32_t(slices_.size());
    node.loop.carries = int32_t(carries_.size());
    node.bodies = {std::make_shared<const Graph>(body(ctx))};
    return node;
  }

  Values operands(const Value& steps) const {
    Values out;
    if (applied_.node.loop.conditional || applied_.node.loop.counted) out.push_back(steps);
    for (const Values* part : {&slices_, &carries_, &captures_}) append(out, *part);
    return out;
  }

  // The gradients of the loop's operands.
  Values gradients(const Values& out) const {
    Values grads(applied_.in.size());
    for (size_t k = 0; k < at_.carries; ++k)
      if (cotangent_of_[k] >= 0) grads[at_.operand(at_.carry(k))] = out[size_t(1 + cotangent_of_[k])];
    const size_t first_sum = 1 + carries_.size() - summed_.size();
    for (size_t k = 0; k < summed_.size(); ++k) grads[at_.operand(summed_[k])] = out[first_sum + k];
    size_t next = 1 + carries_.size();
    for (size_t input = 1; input < 1 + at_.slices; ++input)
      if (place_of(input) >= 0) grads[at_.operand(input)] = out[next++];
    return grads;
  }

 private:
  const Value& outer(size_t input) const { return applied_.in[at_.operand(input)]; }
  // Among the gradients of a step back, or -1.
  int32_t place_of(size_t input) const {
    const auto found = std::find(joint_.wanted.begin(), joint_.wanted.end(), int32_t(input));
    return found == joint_.wanted.end() ? -1 : int32_t(found - joint_.wanted.begin());
  }
  bool is_head(size_t output) const {
    return std::find(joint_.heads.begin(), joint_.heads.end(), int32_t(output)) != joint_.heads.end();
  }
  bool is_carried(int32_t head) const { return size_t(head) < at_.flag + at_.carries; }

  Graph body(Context& ctx) const {
    GraphBuilder builder(GraphBuilder::Stage::kReplay);
    const Writing writing(ctx, builder);
    const Value index = builder.add_input(index_type());
    Values slices, carries, captures;
    for (const Value& v : slices_) slices.push_back(builder.add_input(row_type(v.type())));
    for (const Value& v : carries_) carries.push_back(builder.add_input(v.type()));
    for (const Value& v : captures_) captures.push_back(builder.add_input(v.type()));
    const Values found = builder.splice(ctx, step_.graph, arguments(index, slices, carries, captures));
    Values out;
    for (size_t k = 0; k < at_.carries; ++k) {
      if (cotangent_of_[k] < 0) continue;
      const int32_t place = place_of(at_.carry(k));
      out.push_back(place >= 0 ? found[size_t(place)] : builder.filled(ctx, outer(at_.carry(k)).type(), 0));
    }
    for (size_t k = 0; k < summed_.size(); ++k) {
      Value terms[2] = {carries[carries.size() - summed_.size() + k], found[size_t(place_of(summed_[k]))]};
      out.push_back(apply(ctx, op_named<"add">(), terms, {})[0]);
    }
    for (size_t input = 1; input < 1 + at_.slices; ++input)
      if (place_of(input) >= 0) out.push_back(found[size_t(place_of(input))]);
    for (const Value& v : out) builder.graph.outputs.push_back(builder.operand_of(v));
    builder.graph.ticks = applied_.bodies[0]->ticks;
    return std::move(builder.graph);
  }

  Values arguments(const Value& index, const Values& slices, const Values& carries, const Values& captures) const {
    Values out;
    size_t next_slice = 0, next_capture = 0;
    for (int32_t k : step_.kept) {
      const bool row = at_.is_slice(size_t(k)) || at_.is_carry(size_t(k));
      out.push_back(k == 0 ? index : row ? slices[next_slice++] : captures[next_capture++]);
    }
    for (size_t k = 0; k < step_.residuals.size(); ++k) out.push_back(slices[next_slice++]);
    for (int32_t head : joint_.heads)
      out.push_back(is_carried(head) ? carries[size_t(cotangent_of_[size_t(head) - at_.flag])] : slices[next_slice++]);
    return out;
  }

  const Applied& applied_;
  const Layout at_;
  const Specialized& joint_;
  const StepBack& step_;
  const Values& cotangents_;
  Values slices_, carries_, captures_;
  std::vector<int32_t> cotangent_of_;  // by carry of the loop: its place among the carries here, or -1
  std::vector<size_t> summed_;         // captures, as body inputs; the last of the carries
};

Values Specializer::loop_gradient(const Applied& applied, std::span<const Value> dys) {
  const Layout at(applied.node);
  const size_t outputs = applied.flows[0].size();
  Heads heads;
  heads.chosen.resize(outputs);
  Values cotangents(outputs);
  for (size_t k = 0; k < applied.flowing.size(); ++k) {
    const size_t output = applied.flowing[k] - 1 + at.flag;
    cotangents[output] = dys[k];
    heads.chosen[output] = applied.flows[0][output] && (dys[k].defined() || output < at.flag + at.carries);
  }
  const Specialized joint = Specializer(*applied.node.bodies[0], applied.signatures[0], heads).run();
  const bool any = std::any_of(cotangents.begin(), cotangents.end(), [](const Value& v) { return v.defined(); });
  if (!any) return Values(applied.in.size());
  const StepBack step = joint.heads.empty() ? StepBack()
                        : ctx_.recording    ? step_back_again(applied, joint)
                                            : step_back_kept(applied, joint);
  ReverseLoop reverse(applied, joint, step, cotangents);
  reverse.gather(*this);
  const Values operands = reverse.operands(builder_.symbol({applied.at, 0, 0}));
  Node node = reverse.node(ctx_);
  for (size_t k = 0; k < operands.size(); ++k) node.inputs.push_back({});
  return reverse.gradients(loop(node, operands));
}

}  // namespace pg
