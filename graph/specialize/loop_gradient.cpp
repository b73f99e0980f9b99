// How a loop is differentiated.
//
// The forward loop runs steps 1 to n. Its gradient is another loop, which runs steps n to 1:
//   loop          (index, slices…, carries…, captures…) → [flag] carries… stacked…
//   reverse loop  slices:   rows of the slices, stacks of residuals and carries, cotangents of the stacked outputs
//                 carries:  cotangents of the carries, then one sum per capture with a gradient
//                 captures: the captures that a step back reads
//                 stacked:  gradients of the slices
// 1. loop_gradient() specializes the body with the outputs that have a cotangent as heads. The joint program computes a
// step and its gradients. A carry is always a head if gradients flow through it, because later steps can contribute to
// its cotangent even if its final value has none.
// 2. Without create_graph, split() cuts the joint program of a step in two (step_back_kept). The values that backward
// reads from forward are the residuals. The forward half becomes the body of a new loop that takes the place of the
// first one: it also returns the residuals and the carries at the start of the step as stacked outputs (extend_loop).
// The backward half becomes the body of the reverse loop. If the loop has `recompute` (rematerialization), there are no
// residuals: a step back computes them again from its inputs.
// 3. With create_graph, gradients must flow through the reverse loop as well (step_back_again). The loop is applied a
// second time, with the carries at the start of each step as further stacked outputs. Stacks of an applied loop have a
// history. A step back computes everything else again from the inputs of the step.
// 4. The reverse loop is applied like any other loop. Its carries start from the cotangents of the final carries, or
// zeros. A cotangent after the last step back is the gradient of the initial carry. The gradient of a capture is the
// sum over the steps: it starts from zeros.
// A conditional or counted loop becomes a counted reverse loop. Its count is the output `steps`. Checkpointed loops are
// cut into chunks before they come here (checkpoint.cpp).
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/specialize/control.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// A value of the maximal rank has no room for the dim of the steps. It is flattened before it is stacked.
bool has_full_rank(const Type& type) { return type.shape.size() == kMaxRank; }

Value reshaped(Context& ctx, const Value& v, const Dims& shape) {
  return call<"reshape_to">(Var(ctx, v), {{"shape", ints(shape)}}).value();
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

// Returns the graph with its outputs from number `from` on flattened if they have the maximal rank.
Graph with_flat_outputs(Context& ctx, Graph graph, size_t from) {
  const auto is_full = [&](const Operand& output) { return has_full_rank(graph.type(output)); };
  if (std::none_of(graph.outputs.begin() + ptrdiff_t(from), graph.outputs.end(), is_full)) return graph;
  GraphBuilder builder(GraphBuilder::Stage::kReplay);
  const Writing writing(ctx, builder);
  Values out = builder.splice(ctx, graph, inputs_of(builder, graph));
  for (size_t k = from; k < out.size(); ++k)
    if (has_full_rank(out[k].type())) out[k] = reshaped(ctx, out[k], {numel(out[k].shape())});
  return finished(builder, out, graph);
}

// Returns the graph with those of these inputs flattened that have the maximal rank.
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

// Emits the loop again with a body that also returns what backward needs of each step: the outputs of `forward` after
// the first `outputs`, which are those of the body. The program gets this loop in place of the first one. Returns the
// new outputs.
Values Specializer::extend_loop(const Applied& applied, Graph forward, size_t outputs) {
  int32_t at = applied.at;
  for (const Extension& e : extensions_)
    if (e.node == at) at = e.by;
  Control control = control_of(builder_.graph.nodes[size_t(at)]);
  const Graph& before = *control.bodies[0];
  if (before.outputs.size() > outputs) {  // an earlier gradient has added outputs
    GraphBuilder both(GraphBuilder::Stage::kReplay);
    const Values inputs = inputs_of(both, before);
    Values out = both.splice(ctx_, before, inputs);
    const Values more = both.splice(ctx_, without_effects(forward), inputs);
    append(out, std::span(more).subspan(outputs));
    forward = finished(both, out, before);
  }
  control.bodies = {std::make_shared<const Graph>(std::move(forward))};
  const size_t had = builder_.graph.nodes[size_t(at)].types.size();
  const Values all = builder_.control(ctx_, control, applied.in, {});
  extensions_.push_back({at, builder_.symbol_of(all[0]).node});
  Values added;
  append(added, std::span(all).subspan(had));
  return added;
}

// How a step back is computed. The inputs of the graph are `kept` inputs of the body, then residuals, then cotangents.
struct Specializer::StepBack {
  Graph graph;
  std::vector<int32_t> kept;
  Values residuals;  // stacks, one row per step
  Values carries;    // stacks of the carries at the start of each step; undefined for carries that are not kept
};

// For create_graph: applies the loop again, so that gradients flow through its stacks. A step back recomputes the rest.
// The program gets this loop in place of the first one, unless another gradient has extended that already.
Specializer::StepBack Specializer::step_back_again(const Applied& applied, const Specialized& joint) {
  const Layout at(applied.control.loop, applied.in.size());
  StepBack step;
  std::vector<size_t> stacked;
  for (size_t k = 0; k < 1 + at.slices + at.carries + at.captures; ++k) step.kept.push_back(int32_t(k));
  Control again = applied.control;
  const bool extends =
      std::none_of(extensions_.begin(), extensions_.end(), [&](const Extension& e) { return e.node == applied.at; });
  Graph extended = extends ? *applied.control.bodies[0] : without_effects(*applied.control.bodies[0]);
  const size_t outputs = extended.outputs.size();
  for (size_t k = 0; k < at.carries; ++k) {
    stacked.push_back(at.carry(k));
    extended.outputs.push_back(Operand::of(size_t(extended.inputs[at.carry(k)])));
  }
  step.graph = with_flat_inputs(
      ctx_, traced_gradients_of(ctx_, *applied.control.bodies[0], applied.signatures[0], joint), stacked);
  again.bodies = {std::make_shared<const Graph>(with_flat_outputs(ctx_, std::move(extended), outputs))};
  const Values out = loop(again, applied.in);
  if (extends) extensions_.push_back({applied.at, builder_.symbol_of(out[0]).node});
  append(step.carries, std::span(out).subspan(out.size() - at.carries));
  return step;
}

// Makes the loop of the program return the residuals that split() chooses.
Specializer::StepBack Specializer::step_back_kept(const Applied& applied, Specialized joint) {
  const Layout at(applied.control.loop, applied.in.size());
  PassOptions whole;
  whole.last = Pass::kShape;
  joint.graph = optimize(std::move(joint.graph), whole);
  Split halves = split(joint, applied.control.loop.recompute);
  StepBack step;
  step.kept = std::move(halves.kept);
  step.carries = Values(at.carries);
  const size_t residuals = halves.forward.outputs.size() - joint.outputs;
  std::vector<size_t> stacked;  // inputs of a step back that are rows of stacks
  for (size_t i = 0; i < step.kept.size(); ++i) {
    if (!at.is_carry(size_t(step.kept[i]))) continue;
    halves.forward.outputs.push_back(Operand::of(size_t(halves.forward.inputs[size_t(step.kept[i])])));
    stacked.push_back(i);
  }
  for (size_t k = 0; k < residuals; ++k) stacked.push_back(step.kept.size() + k);
  step.graph = with_flat_inputs(ctx_, std::move(halves.backward), stacked);
  const Values stacks =
      extend_loop(applied, with_flat_outputs(ctx_, std::move(halves.forward), joint.outputs), joint.outputs);
  append(step.residuals, std::span(stacks).subspan(0, residuals));
  size_t next = residuals;
  for (int32_t k : step.kept)
    if (at.is_carry(size_t(k))) step.carries[size_t(k) - at.carry(0)] = stacks[next++];
  return step;
}

// The loop over the steps in reverse order. It carries the cotangents of the carries and the sums of the gradients of
// the captures. It stacks the gradients of the slices.
class Specializer::ReverseLoop {
 public:
  ReverseLoop(const Applied& applied, const Specialized& joint, const StepBack& step, const Values& cotangents)
      : applied_(applied),
        at_(applied.control.loop, applied.in.size()),
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

  Control control(Context& ctx) const {
    Control control = applied_.control;
    LoopForm& form = control.loop;
    form.counted = form.conditional || form.counted;
    form.conditional = false;
    form.reverse = !form.reverse;
    form.slices = int32_t(slices_.size());
    form.carries = int32_t(carries_.size());
    control.bodies = {std::make_shared<const Graph>(body(ctx))};
    return control;
  }

  Values operands(const Value& steps) const {
    Values out;
    if (applied_.control.loop.conditional || applied_.control.loop.counted) out.push_back(steps);
    for (const Values* part : {&slices_, &carries_, &captures_}) append(out, *part);
    return out;
  }

  // Returns the gradients of the loop's operands.
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
  // The position among the gradients of a step back, or -1.
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
  std::vector<int32_t> cotangent_of_;  // by carry of the loop: its position among the carries here, or -1
  std::vector<size_t> summed_;         // captures, as inputs of the body; their sums are the last carries
};

Values Specializer::loop_gradient(const Applied& applied, std::span<const Value> dys) {
  const Layout at(applied.control.loop, applied.in.size());
  const size_t outputs = applied.flows[0].size();
  Heads heads;
  heads.chosen.resize(outputs);
  Values cotangents(outputs);
  for (size_t k = 0; k < applied.flowing.size(); ++k) {
    const size_t output = applied.flowing[k] - 1 + at.flag;
    cotangents[output] = dys[k];
    heads.chosen[output] = applied.flows[0][output] && (dys[k].defined() || output < at.flag + at.carries);
  }
  const Specialized joint = Specializer(*applied.control.bodies[0], applied.signatures[0], heads).run();
  const bool any = std::any_of(cotangents.begin(), cotangents.end(), [](const Value& v) { return v.defined(); });
  if (!any) return Values(applied.in.size());
  const StepBack step = joint.heads.empty() ? StepBack()
                        : ctx_.recording    ? step_back_again(applied, joint)
                                            : step_back_kept(applied, joint);
  ReverseLoop reverse(applied, joint, step, cotangents);
  reverse.gather(*this);
  const Values operands = reverse.operands(builder_.symbol({applied.at, 0, 0}));
  return reverse.gradients(loop(reverse.control(ctx_), operands));
}

}  // namespace pg
