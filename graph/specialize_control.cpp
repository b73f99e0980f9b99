// Branches and loops in specialize(): a body is specialized as a program of its own, and the gradient of a branch or loop is
// a branch or loop over the bodies' gradients, applied here like any other, so it has gradients in turn.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/specialize_replay.h"
#include "tensor/rule.h"

namespace pg {
namespace {

void append(Values& to, std::span<const Value> more) {
  for (const Value& v : more) to.push_back(v);
}

// The parts of a loop's operands and of what belongs to them in its body; the condition is closed.
struct Layout {
  explicit Layout(const Node& node)
      : flag(node.loop.conditional), first(size_t(node.loop.first_slice(false))), slices(size_t(node.loop.slices)),
        carries(size_t(node.loop.carries)), captures(node.inputs.size() - first - slices - carries) {}
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

}  // namespace

// A branch or loop as it was applied, which its gradient needs to know.
struct Replay::Applied {
  Node node;                              // as a trace has it, but for a closed condition
  Values in;                              // with their history
  std::vector<Signature> signatures;      // of the bodies, with the flows that were found
  std::vector<std::vector<char>> flows;   // by body: which outputs gradients flow through
  std::vector<std::shared_ptr<const Graph>> bodies;  // specialized
  std::vector<size_t> flowing;            // outputs of the node that gradients flow through
  size_t first = 0;                       // the operand that is the bodies' first input; of loops their second
  int32_t at = -1;                        // the node in the program
};

Signature Replay::body_signature(const Graph& body) const {
  Signature signature;
  signature.recording = ctx_.recording;
  signature.training = ctx_.training;
  signature.types = SmallVector<Type, 8>(body.inputs.size());
  signature.flows = SmallVector<Flow, 8>(body.inputs.size());
  return signature;
}

Values Replay::emit_control(std::shared_ptr<Applied> applied, Values (Replay::*gradient)(const Applied&, std::span<const Value>)) {
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
  record_custom(ctx_, node.name, linked, heads, [this, applied, gradient](Context&, TapeNode&, std::span<const Value> dys) {
    return (this->*gradient)(*applied, dys);
  });
  for (size_t k = 0; k < heads.size(); ++k) out[applied->flowing[k]] = heads[k];
  return out;
}

// Branches -------------------------------------------------------------------------------------------------------------------

Values Replay::cond(const Node& node, const Values& in) {
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
    Replay body(*trace, signature, {false, {}});
    applied->bodies.push_back(std::make_shared<const Graph>(body.run().graph));
    applied->flows.push_back(body.flows);
    for (size_t k = 0; k < flowing.size(); ++k) flowing[k] |= body.flows[k];
  }
  const Graph &a = *applied->bodies[0], &b = *applied->bodies[1];
  for (size_t k = 0; k < node.types.size(); ++k) {
    const Type &x = a.type(a.outputs[k]), &y = b.type(b.outputs[k]);
    if (!(x == y)) throw Error(fmt::format("cond: the branches answer different types (result {}: then_f {}, else_f {})", k + 1, to_string(x), to_string(y)));
    applied->node.types[k] = x;
    if (flowing[k]) applied->flowing.push_back(k);
  }
  if (node.types.empty()) {  // only effects
    Node effects = node;
    effects.bodies = applied->bodies;
    builder_.control(ctx_, effects, in, {});
    return {};
  }
  return emit_control(applied, &Replay::cond_gradient);
}

// A cond on the same predicate whose branches run the branch again and go back through it.
Values Replay::cond_gradient(const Applied& applied, std::span<const Value> dys) {
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
    joints.push_back(Replay(*node.bodies[b], applied.signatures[b], heads).run());
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
      const Value value = at == joint.wanted.end() ? builder.filled(ctx_, in[1 + k].type(), 0) : found[size_t(at - joint.wanted.begin())];
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

// Loops ----------------------------------------------------------------------------------------------------------------------

// Makes the second body of a conditional loop of a trace an operand, what it says at first, and the first output of the body.
void Replay::close_condition(Node& node, Values& in) {
  const std::shared_ptr<const Graph> body = node.bodies[0], condition = node.bodies[1];
  const size_t slices = size_t(node.loop.slices), carries = size_t(node.loop.carries), first = size_t(node.loop.counted);
  Values at_first{zeros(index_type())};
  append(at_first, std::span(in).subspan(first + slices));
  const Value flag = inlined(*condition, at_first)[0];
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
    throw Error(fmt::format("{}: the body changed the type of state {} (expected {}, got {})", node.name, k + 1, to_string(before), to_string(after)));
}

}  // namespace

Values Replay::loop(Node node, Values in) {
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
    Replay replay(trace, signature, {false, {}});
    const Graph body = replay.run().graph;
    flows = replay.flows;
    for (size_t k = 0; k < at.carries; ++k) {
      const size_t input = at.carry(k);
      check_carry(node, k, signature.types[input], body.type(body.outputs[at.flag + k]));
      if (flows[at.flag + k] && signature.flows[input] == Flow::kNone) signature.flows[input] = Flow::kHistory, again = true;
    }
    applied->bodies = {std::make_shared<const Graph>(body)};
  }
  const Graph& body = *applied->bodies[0];
  node.types.clear();
  node.types.push_back(index_type());
  for (size_t k = at.flag; k < body.outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k]);
    node.types.push_back(k - at.flag < at.carries ? type : stack_type(type, std::max<int64_t>(form.limit, 0)));
    if (flows[k]) applied->flowing.push_back(1 + k - at.flag);
  }
  applied->node = std::move(node);
  applied->in = std::move(in);
  applied->signatures = {signature};
  applied->flows = {flows};
  return emit_control(applied, &Replay::loop_gradient);
}

// Has the loop at a node of the program give out what backward wants of each step besides `outputs` of its body: the rest of
// forward's outputs, then what the body takes as these carries.
void Replay::keep_for_backward(int32_t at, Graph forward, size_t outputs, std::span<const Operand> carries) {
  Node& node = builder_.graph.nodes[size_t(at)];
  const size_t flag = node.loop.conditional, had = flag + node.types.size() - 1;
  for (size_t k = outputs; k < forward.outputs.size(); ++k)
    node.types.push_back(stack_type(forward.type(forward.outputs[k]), std::max<int64_t>(node.loop.limit, 0)));
  for (const Operand& carry : carries) {
    node.types.push_back(stack_type(forward.type(carry), std::max<int64_t>(node.loop.limit, 0)));
    forward.outputs.push_back(carry);
  }
  if (had > outputs) {  // it has given out more before
    const Graph before = *node.bodies[0];
    GraphBuilder both(GraphBuilder::Stage::kReplay);
    Values inputs;
    for (int32_t k : before.inputs) inputs.push_back(both.add_input(before.nodes[size_t(k)].types[0]));
    Values out = both.splice(ctx_, before, inputs);
    const Values more = both.splice(ctx_, without_effects(forward), inputs);
    append(out, std::span(more).subspan(outputs));
    for (const Value& v : out) both.graph.outputs.push_back(both.operand_of(v));
    both.graph.ticks = before.ticks;
    forward = std::move(both.graph);
  }
  node.bodies = {std::make_shared<const Graph>(std::move(forward))};
}

// A loop the other way round over what the steps kept. It carries the cotangents of the carries, and the sums of the
// gradients of the captures.
Values Replay::loop_gradient(const Applied& applied, std::span<const Value> dys) {
  const Node& node = applied.node;
  const Layout at(node);
  const std::vector<char>& flows = applied.flows[0];
  Heads heads;
  heads.chosen.resize(flows.size());
  Values cotangents(flows.size());
  for (size_t k = 0; k < applied.flowing.size(); ++k) {
    const size_t output = applied.flowing[k] - 1 + at.flag;
    cotangents[output] = dys[k];
    heads.chosen[output] = dys[k].defined() || output < at.flag + at.carries;
  }
  Specialized joint = Replay(*node.bodies[0], applied.signatures[0], heads).run();
  Values grads(applied.in.size());
  if (joint.heads.empty()) return grads;

  // What a step back takes: `kept` inputs of the body, residuals, cotangents; its carries as the loop gave them out.
  Graph backward;
  std::vector<int32_t> kept;
  Values residuals, kept_carries(at.carries);
  if (ctx_.recording) {  // the loop again, as one that gradients flow through
    backward = gradients_of(joint);
    for (size_t k = 0; k < at.captures + at.carries + at.slices + 1; ++k) kept.push_back(int32_t(k));
    Node again = node;
    Graph extended = without_effects(*node.bodies[0]);
    for (size_t k = 0; k < at.carries; ++k) extended.outputs.push_back(Operand::of(size_t(extended.inputs[at.carry(k)])));
    again.bodies = {std::make_shared<const Graph>(std::move(extended))};
    const Values out = loop(again, applied.in);
    for (size_t k = 0; k < at.carries; ++k) kept_carries[k] = out[out.size() - at.carries + k];
  } else {
    PassOptions whole;
    whole.kernels = false;
    joint.graph = optimize(std::move(joint.graph), whole);
    Split halves = split(joint, node.loop.recompute);
    backward = std::move(halves.backward);
    kept = std::move(halves.kept);
    const size_t residual_count = halves.forward.outputs.size() - joint.outputs;
    std::vector<Operand> carries;
    for (int32_t k : kept)
      if (at.is_carry(size_t(k))) carries.push_back(Operand::of(size_t(halves.forward.inputs[size_t(k)])));
    const size_t first = builder_.graph.nodes[size_t(applied.at)].types.size();
    keep_for_backward(applied.at, std::move(halves.forward), joint.outputs, carries);
    size_t next = first + residual_count;
    for (size_t k = 0; k < residual_count; ++k) residuals.push_back(builder_.symbol({applied.at, int32_t(first + k), 0}));
    for (int32_t k : kept)
      if (at.is_carry(size_t(k))) kept_carries[size_t(k) - at.carry(0)] = builder_.symbol({applied.at, int32_t(next++), 0});
  }

  // The operands, each with its place among the inputs of the body.
  Node reverse;
  reverse.kind = NodeKind::kLoop;
  reverse.name = node.name;
  reverse.line = node.line;
  reverse.streams = node.streams;
  reverse.loop = node.loop;
  reverse.loop.conditional = false;
  reverse.loop.reverse = !node.loop.reverse;
  reverse.loop.counted = node.loop.conditional || node.loop.counted;
  Values counts, slices, carries, captures;
  if (reverse.loop.counted) counts.push_back(builder_.symbol({applied.at, 0, 0}));
  GraphBuilder builder(GraphBuilder::Stage::kReplay);
  Values inputs, arguments, slice_inputs, carry_inputs, capture_inputs;
  auto add_slice = [&](const Value& v) { slices.push_back(v); };
  for (int32_t k : kept) {
    if (at.is_slice(size_t(k))) add_slice(applied.in[at.operand(size_t(k))]);
    else if (at.is_carry(size_t(k))) add_slice(kept_carries[size_t(k) - at.carry(0)]);
    else if (k > 0) captures.push_back(applied.in[at.operand(size_t(k))]);
  }
  for (const Value& v : residuals) add_slice(v);
  std::vector<size_t> carried;   // carries of the loop whose cotangents are carried
  std::vector<int32_t> carry_of(at.carries, -1);
  auto is_wanted = [&](size_t input) { return std::find(joint.wanted.begin(), joint.wanted.end(), int32_t(input)) != joint.wanted.end(); };
  auto is_head = [&](size_t output) { return std::find(joint.heads.begin(), joint.heads.end(), int32_t(output)) != joint.heads.end(); };
  for (size_t k = 0; k < at.carries; ++k) {
    if (!is_wanted(at.carry(k)) && !is_head(at.flag + k)) continue;
    carry_of[k] = int32_t(carried.size());
    carried.push_back(k);
    const Value& dy = cotangents[at.flag + k];
    carries.push_back(dy.defined() ? dy : zeros(applied.in[at.operand(at.carry(k))].type()));
  }
  std::vector<size_t> summed;    // captures whose gradients are summed up, as body inputs
  for (size_t k = at.carry(at.carries); k < 1 + at.slices + at.carries + at.captures; ++k) {
    if (!is_wanted(k)) continue;
    summed.push_back(k);
    carries.push_back(zeros(applied.in[at.operand(k)].type()));
  }
  for (int32_t head : joint.heads)
    if (size_t(head) >= at.flag + at.carries) add_slice(cotangents[size_t(head)]);
  reverse.loop.slices = int32_t(slices.size());
  reverse.loop.carries = int32_t(carries.size());

  {
    const Writing writing(ctx_, builder);
    const Value index = builder.add_input(index_type());
    for (const Value& v : slices) slice_inputs.push_back(builder.add_input(row_type(v.type())));
    for (const Value& v : carries) carry_inputs.push_back(builder.add_input(v.type()));
    for (const Value& v : captures) capture_inputs.push_back(builder.add_input(v.type()));
    size_t next_slice = 0, next_capture = 0;
    for (int32_t k : kept) {
      if (k == 0) arguments.push_back(index);
      else arguments.push_back(at.is_slice(size_t(k)) || at.is_carry(size_t(k)) ? slice_inputs[next_slice++] : capture_inputs[next_capture++]);
    }
    for (size_t k = 0; k < residuals.size(); ++k) arguments.push_back(slice_inputs[next_slice++]);
    for (int32_t head : joint.heads) {
      const size_t output = size_t(head);
      if (output >= at.flag + at.carries) arguments.push_back(slice_inputs[next_slice++]);
      else arguments.push_back(carry_inputs[size_t(carry_of[output - at.flag])]);
    }
    const Values found = builder.splice(ctx_, backward, arguments);
    auto gradient_of = [&](size_t input) {
      const auto place = std::find(joint.wanted.begin(), joint.wanted.end(), int32_t(input));
      return place == joint.wanted.end() ? Value() : found[size_t(place - joint.wanted.begin())];
    };
    Values out;
    for (size_t k : carried) {
      const Value g = gradient_of(at.carry(k));
      out.push_back(g.defined() ? g : builder.filled(ctx_, applied.signatures[0].types[at.carry(k)], 0));
    }
    for (size_t k = 0; k < summed.size(); ++k) {
      Value terms[2] = {carry_inputs[carried.size() + k], gradient_of(summed[k])};
      out.push_back(apply(ctx_, op_named<"add">(), terms, {})[0]);
    }
    for (size_t k = 1; k < 1 + at.slices; ++k)
      if (is_wanted(k)) out.push_back(gradient_of(k));
    for (const Value& v : out) builder.graph.outputs.push_back(builder.operand_of(v));
    builder.graph.ticks = applied.bodies[0]->ticks;
  }
  reverse.bodies = {std::make_shared<const Graph>(std::move(builder.graph))};
  Values operands = counts;
  append(operands, slices);
  append(operands, carries);
  append(operands, captures);
  for (size_t k = 0; k < operands.size(); ++k) reverse.inputs.push_back({});
  const Values out = loop(reverse, operands);
  for (size_t k = 0; k < carried.size(); ++k)
    if (is_wanted(at.carry(carried[k]))) grads[at.operand(at.carry(carried[k]))] = out[1 + k];
  for (size_t k = 0; k < summed.size(); ++k) grads[at.operand(summed[k])] = out[1 + carried.size() + k];
  size_t next = 1 + carries.size();
  for (size_t k = 1; k < 1 + at.slices; ++k)
    if (is_wanted(k)) grads[at.operand(k)] = out[next++];
  return grads;
}

}  // namespace pg
