// Branches and loops in specialize(). A body is specialized as a program of its own. The gradient of a branch or loop
// is a branch or loop over the gradients of the bodies. It is applied like any other node, so it has gradients in turn.
#include "graph/specialize/control.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "graph/ir/history.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

int64_t rows_of(const Value& v) { return v.shape()[0]; }

}  // namespace

Graph traced_gradients_of(Context& ctx, const Graph& body, const Signature& signature, const Specialized& joint) {
  GraphBuilder builder(GraphBuilder::Stage::kTrace);
  const Writing writing(ctx, builder);
  Values arguments, heads, cotangents, wanted;
  for (const Type& type : signature.types) arguments.push_back(builder.add_input(type));
  for (int32_t head : joint.heads)
    cotangents.push_back(builder.add_input(joint.graph.type(joint.graph.outputs[size_t(head)])));
  for (int32_t k : joint.wanted) {
    arguments[size_t(k)] = builder.fresh_input(ctx, arguments[size_t(k)]);
    wanted.push_back(arguments[size_t(k)]);
  }
  const Values outputs = builder.splice(ctx, without_effects(body), arguments);
  for (int32_t head : joint.heads) heads.push_back(outputs[size_t(head)]);
  for (const Value& v : builder.gradient(ctx, heads, cotangents, wanted, true, 0))
    builder.graph.outputs.push_back(builder.operand_of(v));
  return std::move(builder.graph);
}

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
  Control control = applied->control;
  control.bodies = applied->bodies;
  Values out = builder_.control(ctx_, control, applied->in, {});
  if (out.size() == 0) return out;  // the node runs only for its effects
  applied->at = builder_.symbol_of(out[0]).node;
  if (control.is_loop() && control.loop.limit < 0)
    for (size_t k = size_t(1 + control.loop.carries); k < out.size(); ++k) builder_.mark_unlimited(out[k], out[0]);
  if (!ctx_.recording || applied->flowing.empty()) return out;
  Values linked(applied->in.size()), heads;
  for (size_t i = applied->first; i < applied->in.size(); ++i)
    if (is_float(applied->in[i].dtype())) linked[i] = applied->in[i];
  for (size_t k : applied->flowing) heads.push_back(out[k]);
  record_custom(ctx_, control.name, linked, heads,
                [this, applied, gradient](Context&, TapeNode&, std::span<const Value> dys) {
                  return (this->*gradient)(*applied, dys);
                });
  for (size_t k = 0; k < heads.size(); ++k) out[applied->flowing[k]] = heads[k];
  return out;
}

// Branches ----------------------------------------------------------------------------------------------------------

Values Specializer::cond(const Control& control, const Values& in) {
  auto applied = std::make_shared<Applied>();
  applied->control = control;
  applied->in = in;
  applied->first = 1;
  std::vector<char> flowing(control.bodies[0]->outputs.size());
  for (const auto& trace : control.bodies) {
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
  for (size_t k = 0; k < flowing.size(); ++k) {
    const Type &x = a.type(a.outputs[k]), &y = b.type(b.outputs[k]);
    if (!(x == y))
      throw Error(fmt::format("cond: the branches return different types (result {}: then_f {}, else_f {})", k + 1,
                              to_string(x), to_string(y)));
    if (flowing[k]) applied->flowing.push_back(k);
  }
  return emit_control(applied, &Specializer::cond_gradient);
}

// The gradient of a cond is a cond on the same predicate. Each branch runs the original branch again, then its
// gradient.
Values Specializer::cond_gradient(const Applied& applied, std::span<const Value> dys) {
  const Control& control = applied.control;
  const size_t captures = applied.in.size() - 1, outputs = control.bodies[0]->outputs.size();
  Heads heads;
  heads.chosen.resize(outputs);
  Values in = applied.in;
  std::vector<size_t> places(outputs);  // by output: the position of its cotangent among the captures
  for (size_t k = 0; k < applied.flowing.size(); ++k) {
    if (!dys[k].defined()) continue;
    heads.chosen[applied.flowing[k]] = true;
    places[applied.flowing[k]] = in.size() - 1;
    in.push_back(dys[k]);
  }
  std::vector<Specialized> joints;
  std::vector<char> wanted(captures);
  for (size_t b = 0; b < 2; ++b) {
    joints.push_back(Specializer(*control.bodies[b], applied.signatures[b], heads).run());
    for (int32_t k : joints[b].wanted) wanted[size_t(k)] = true;
  }
  Control gradient = control;
  gradient.bodies.clear();
  if (std::find(wanted.begin(), wanted.end(), 1) == wanted.end()) return Values(applied.in.size());
  const bool again = ctx_.recording;  // with create_graph
  for (size_t b = 0; b < 2; ++b) {
    const Specialized& joint = joints[b];
    GraphBuilder builder(GraphBuilder::Stage::kReplay);
    const Writing writing(ctx_, builder);
    Values inputs, arguments, found;
    for (size_t k = 1; k < in.size(); ++k) inputs.push_back(builder.add_input(in[k].type()));
    for (size_t k = 0; k < captures; ++k) arguments.push_back(inputs[k]);
    for (int32_t head : joint.heads) arguments.push_back(inputs[places[size_t(head)]]);
    if (!joint.heads.empty())
      found = builder.splice(
          ctx_,
          again ? traced_gradients_of(ctx_, *control.bodies[b], applied.signatures[b], joint) : gradients_of(joint),
          arguments);
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
  const Values out = cond(gradient, in);
  Values grads(applied.in.size());
  size_t next = 0;
  for (size_t k = 0; k < captures; ++k)
    if (wanted[k]) grads[1 + k] = out[next++];
  return grads;
}

// Loops -------------------------------------------------------------------------------------------------------------

// Closes the condition of a conditional loop of a trace, which is its second body. The value before the first step
// becomes the operand `flag`. The value after each step becomes the first output of the body.
void Specializer::close_condition(Control& control, Values& in) {
  const std::shared_ptr<const Graph> body = control.bodies[0], condition = control.bodies[1];
  const size_t slices = size_t(control.loop.slices), carries = size_t(control.loop.carries),
               first = size_t(control.loop.counted);
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
  control.bodies = {std::make_shared<const Graph>(std::move(joined.graph))};
}

namespace {

// Returns the number of rows of the slices. Throws Error unless all slices have the same number.
int64_t count_rows(const Control& control, const Values& in, const Layout& at) {
  const int64_t rows = rows_of(in[at.first]);
  for (size_t k = 1; k < at.slices; ++k)
    if (rows_of(in[at.first + k]) != rows)
      throw Error(
          fmt::format("{}: the data differ in length: {} and {}", control.name, rows, rows_of(in[at.first + k])));
  return rows;
}

void check_carry(const Control& control, size_t k, const Type& before, const Type& after) {
  if (!(before == after))
    throw Error(fmt::format("{}: the body changed the type of state {} (expected {}, got {})", control.name, k + 1,
                            to_string(before), to_string(after)));
}

// Adds the carries that gradients seem to flow to through the steps. To find them one replay after the other would take
// as many replays as there are carries, in each loop of a nest.
void guess_flows(const Graph& trace, const Layout& at, Signature& signature) {
  std::vector<std::vector<size_t>> readers(signature.flows.size());  // by input: the carries that depend on it
  Histories histories;
  for (size_t k = 0; k < at.carries; ++k) {
    if (signature.flows[at.carry(k)] != Flow::kNone || !is_float(signature.types[at.carry(k)].dtype)) continue;
    for (const Origin& from : histories.inputs_behind(trace, trace.outputs[at.flag + k]))
      if (!from.if_leaf) readers[size_t(from.input)].push_back(k);
  }
  std::vector<size_t> open;
  for (size_t input = 0; input < readers.size(); ++input)
    if (signature.flows[input] != Flow::kNone) open.push_back(input);
  while (!open.empty()) {
    const size_t input = open.back();
    open.pop_back();
    for (size_t k : readers[input]) {
      if (signature.flows[at.carry(k)] != Flow::kNone) continue;
      signature.flows[at.carry(k)] = Flow::kHistory;
      open.push_back(at.carry(k));
    }
  }
}

}  // namespace

// After run() of the body of a loop: by carry, whether gradients flow to its next value if, of the inputs, they flow to
// those of `given` and to the carries found here. The signature of the run may have more.
std::vector<char> Specializer::reached_carries(const Layout& at, const Signature& given) const {
  const std::unordered_set<const TapeNode*> found = history_of(results_);
  std::vector<const TapeNode*> nodes(found.begin(), found.end());
  std::sort(nodes.begin(), nodes.end(), [](const TapeNode* a, const TapeNode* b) { return a->sequence < b->sequence; });
  std::unordered_map<const TapeNode*, char> reached;
  for (const TapeNode* node : nodes)
    reached[node] = std::none_of(node->inputs.begin(), node->inputs.end(), requires_grad);
  for (size_t k = 0; k < at.carries; ++k)
    if (const TapeNode* leaf = input_leaves_[at.carry(k)].get(); leaf && given.flows[at.carry(k)] == Flow::kNone)
      reached[leaf] = false;
  std::vector<char> out(at.carries);
  for (bool again = true; again;) {
    again = false;
    for (const TapeNode* node : nodes) {
      if (reached[node]) continue;
      reached[node] = std::any_of(node->inputs.begin(), node->inputs.end(),
                                  [&](const Value& v) { return requires_grad(v) && reached[v.node()]; });
    }
    for (size_t k = 0; k < at.carries; ++k) {
      const TapeNode* node = results_[at.flag + k].node();
      if (out[k] || !node || !reached[node]) continue;
      out[k] = true;
      const TapeNode* leaf = input_leaves_[at.carry(k)].get();
      if (leaf && !std::exchange(reached[leaf], true)) again = true;
    }
  }
  return out;
}

Values Specializer::loop(Control control, Values in) {
  if (control.has_condition()) close_condition(control, in);
  if (control.loop.checkpoint > 0) return checkpointed(control, in);
  LoopForm& form = control.loop;
  const Layout at(form, in.size());
  if (at.slices > 0 && !form.conditional && !form.counted) form.limit = count_rows(control, in, at);
  const Graph& trace = *control.bodies[0];
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
  const Signature given = signature;
  if (ctx_.recording) guess_flows(trace, at, signature);
  for (bool first = true, again = true; again; first = false) {
    again = false;
    Specializer replay(trace, signature, {false, {}});
    const Graph body = replay.run().graph;
    flows = replay.flows;
    const std::vector<char> reached = replay.reached_carries(at, given);
    for (size_t k = 0; k < at.carries; ++k) {
      Flow& flow = signature.flows[at.carry(k)];
      check_carry(control, k, signature.types[at.carry(k)], body.type(body.outputs[at.flag + k]));
      const Flow now = reached[k] ? Flow::kHistory : given.flows[at.carry(k)];
      if (now == flow || (now == Flow::kNone && !first)) continue;
      flow = now;
      again = true;
    }
    applied->bodies = {std::make_shared<const Graph>(body)};
  }
  const Graph& body = *applied->bodies[0];
  for (size_t k = at.flag; k < body.outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k]);
    // If no step runs, the loop returns the initial carries.
    const bool passes = k >= at.flag && k < at.flag + at.carries &&
                        requires_grad(in[at.operand(at.carry(k - at.flag))]) &&
                        (form.conditional || form.counted || form.limit == 0) && is_float(type.dtype);
    if (flows[k] || passes) applied->flowing.push_back(1 + k - at.flag);
  }
  applied->control = std::move(control);
  applied->in = std::move(in);
  applied->signatures = {signature};
  applied->flows = {flows};
  return emit_control(applied, &Specializer::loop_gradient);
}

}  // namespace pg
