#include "graph/exec/program.h"

#include <algorithm>
#include <numeric>

#include "graph/exec/entry.h"
#include "graph/exec/kept.h"
#include "graph/ir/history.h"
#include "graph/passes/passes.h"
#include "tensor/observer.h"

namespace pg {
namespace {

// Plans that are kept: at most so many, which find() looks through, and above the fewest only with so many nodes
// together, of about 1 KB each. Sequences of 1 to 512 items keep their plans.
constexpr size_t kMaxSpecializations = 512, kFewestSpecializations = 16, kMaxNodes = size_t(1) << 17;

bool any_flow(std::span<const Value> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return flow_of(v) != Flow::kNone; });
}

// Whether a run computes every gradient that the walk over its node needs.
bool all_wanted(const Specialized& joint, const TapeNode& node) {
  const auto needed = node.replaced.size() - size_t(std::count(node.replaced.begin(), node.replaced.end(), nullptr));
  return needed == size_t(std::count_if(joint.wanted.begin(), joint.wanted.end(),
                                        [&](int32_t k) { return node.replaced[size_t(k)] != nullptr; }));
}

}  // namespace

bool reads_flows(const Graph& trace) {
  for (const Node& node : trace.nodes) {
    if (node.kind == NodeKind::kGradient || node.recording == Mode::kOn) return true;
    for (const Graph* body : bodies_of(node))
      if (reads_flows(*body)) return true;
  }
  for (const TypeGuard& guard : trace.guards)
    if (guard.kind == TypeGuard::kRequiresGrad) return true;
  return false;
}

Program::Program(Graph trace, std::vector<Ref<Generator>> generators, Options options)
    : trace_(std::make_shared<Graph>(std::move(trace))),
      generators_(std::move(generators)),
      options_(std::move(options)),
      shelf_(std::make_shared<KeptShelf>()),
      leaves_(returned_leaves(*trace_)),
      reads_flows_(reads_flows(*trace_)) {}

size_t Program::specializations() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t Program::arena_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& entry : entries_) {
    bytes += entry->forward->held_bytes();
    if (entry->backward) bytes += entry->backward->held_bytes();
  }
  return bytes;
}

Graph Program::optimized() const {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return *trace_;
  return Entry(*this, entries_[0]->signature).differentiate();
}

bool Program::records(const Context& ctx, std::span<const Value> inputs) const {
  return ctx.recording && (!leaves_.empty() || reads_flows_ || any_flow(inputs));
}

std::shared_ptr<Program::Entry> Program::make(Context& ctx, std::span<const Value> inputs) {
  Signature signature;
  signature.training = ctx.training;
  signature.recording = records(ctx, inputs);
  const bool exact_flows = signature.recording || reads_flows_;
  for (const Value& v : inputs) {
    signature.types.push_back(v.type());
    signature.flows.push_back(exact_flows ? flow_of(v) : Flow::kNone);
  }
  auto entry = std::make_shared<Entry>(*this, std::move(signature));
  const Graph program = entry->differentiate();
  entry->nodes = program.nodes.size() + entry->backward_graph.nodes.size();
  std::vector<int32_t> all(inputs.size());
  std::iota(all.begin(), all.end(), 0);
  PlanOptions options = entry->plan_options(all);
  if (!entry->joint.heads.empty()) options.left = place_residuals(program, entry->joint.outputs);
  entry->forward = make_plan(program, options);
  entry->residuals = block_left_by(*entry->forward, entry->joint.outputs, entry->kept.size());
  return entry;
}

bool Program::too_many() const {
  if (entries_.size() <= kFewestSpecializations) return false;
  size_t nodes = 0;
  for (const auto& entry : entries_) nodes += entry->nodes;
  return entries_.size() > kMaxSpecializations || nodes > kMaxNodes;
}

std::shared_ptr<Program::Entry> Program::find(Context& ctx, std::span<const Value> inputs) {
  const bool recording = records(ctx, inputs);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i]->fits(inputs, recording, ctx.training)) continue;
    if (i > 0) std::rotate(entries_.begin(), entries_.begin() + ptrdiff_t(i), entries_.begin() + ptrdiff_t(i) + 1);
    return entries_[0];
  }
  if (options_.static_shape && !entries_.empty()) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!(inputs[i].type() == entries_[0]->signature.types[i]))
        throw Error(fmt::format("{}: input {} is {}, static_shape promised {}", options_.name, i + 1,
                                to_string(inputs[i].type()), to_string(entries_[0]->signature.types[i])));
  }
  std::shared_ptr<Entry> entry;
  try {
    entry = observed(ctx, Work::Kind::kCompile, options_.name, [&] { return make(ctx, inputs); });
  } catch (const PositionedError& e) {
    if (entries_.empty()) throw;  // the call that was traced raises its own error
    throw Refused(e.what());
  }
  entries_.insert(entries_.begin(), entry);
  while (too_many()) {
    // Any of the older half: to drop the last one would miss each time when more types than fit come in turns.
    const size_t newer = (entries_.size() + 1) / 2;
    entries_.erase(entries_.begin() + ptrdiff_t(newer + dropped_() % (entries_.size() - newer)));
  }
  return entry;
}

Values Program::run(Context& ctx, std::span<Value> inputs, const Spare* spare) {
  SmallVector<RandomKey, 2> states;
  for (const Ref<Generator>& generator : generators_) states.push_back(generator->state());
  const auto advance = [&](bool forward) {
    for (size_t g = 0; g < generators_.size(); ++g)
      generators_[g]->set_state({states[g].seed, states[g].tick + (forward ? trace_->ticks[g] : 0)});
  };
  if (ctx.suspender) advance(true);  // while the run is suspended others may use the generators
  const uint64_t before = ctx.suspensions;
  try {
    Values out = run_with(ctx, inputs, states, spare);
    if (ctx.suspensions == before) advance(true);
    return out;
  } catch (...) {
    if (ctx.suspender && ctx.suspensions == before) advance(false);
    throw;
  }
}

const std::vector<std::vector<Origin>>& Program::histories() const {
  std::call_once(histories_made_, [&] {
    Histories histories;
    for (const Operand& output : trace_->outputs)
      histories_.push_back(histories.inputs_behind(*trace_, output, leaves_));
  });
  return histories_;
}

// The outputs of a run that get a history, and the inputs that this history goes back to: of all outputs, and by
// output.
struct Program::Recorded {
  std::vector<int32_t> heads;  // the heads of the entry, then outputs whose history has only frozen inputs
  std::vector<char> linked;
  std::shared_ptr<std::vector<std::vector<int32_t>>> behind;

  void add(int32_t head, std::vector<int32_t> inputs) {
    heads.push_back(head);
    for (int32_t i : inputs) linked[size_t(i)] = true;
    if (!behind) behind = std::make_shared<std::vector<std::vector<int32_t>>>();
    behind->push_back(std::move(inputs));
  }
};

Program::Recorded Program::outputs_to_record(Context& ctx, const Entry& entry, std::span<const Value> inputs) const {
  Recorded out;
  const bool frozen = ctx.recording && std::any_of(inputs.begin(), inputs.end(), is_frozen);
  if (entry.joint.heads.empty() && !frozen) return out;
  out.linked.resize(inputs.size() + leaves_.size());
  std::vector<char> is_head(trace_->outputs.size());
  for (int32_t head : entry.joint.heads) {
    is_head[size_t(head)] = true;
    out.add(head, origins_among(histories()[size_t(head)], inputs));
  }
  for (size_t k = 0; frozen && k < is_head.size(); ++k) {
    if (is_head[k]) continue;
    std::vector<int32_t> behind = origins_among(histories()[k], inputs);
    if (std::any_of(behind.begin(), behind.end(),
                    [&](int32_t i) { return size_t(i) < inputs.size() && is_frozen(inputs[size_t(i)]); }))
      out.add(int32_t(k), std::move(behind));
  }
  return out;
}

// Makes the outputs that are leaves of the trace leaves of the tape. Returns them, in the order of leaves_.
Values Program::link_leaves(Values& out) const {
  Values found;
  for (int32_t leaf : leaves_) {
    Ref<TapeNode> node;
    for (size_t k = 0; k < trace_->outputs.size(); ++k) {
      if (made_leaf(*trace_, trace_->outputs[k]) != leaf) continue;
      if (!node) node = make_leaf(out[k].type(), trace_->nodes[size_t(leaf)].req);
      out[k].link(node.get(), 0);
      if (trace_->outputs[k].node != leaf) continue;  // contents that were written to it
      if (found.empty() || found.back().node() != node.get()) found.push_back(out[k]);
    }
  }
  return found;
}

// What the backward of a run needs.
struct Program::Run {
  std::shared_ptr<Entry> entry;
  std::vector<int32_t> heads;
  Values residuals;
  std::vector<RandomKey> states;
  bool quick = false;  // forward took less than kPatience
};

Values Program::run_with(Context& ctx, std::span<Value> inputs, std::span<const RandomKey> states, const Spare* spare) {
  const std::shared_ptr<Entry> entry = find(ctx, inputs);
  const Recorded recorded = outputs_to_record(ctx, *entry, inputs);
  if (recorded.heads.empty()) {
    Values out = pg::run(*entry->forward, ctx, inputs, states, spare);
    link_leaves(out);
    return out;
  }
  std::vector<Value> kept(inputs.begin(), inputs.end());
  const double start = entry->lends ? thread_seconds() : 0;
  Values out = pg::run(*entry->forward, ctx, inputs, states), heads;
  for (Value& leaf : link_leaves(out)) kept.push_back(std::move(leaf));
  Values linked(kept.size());
  for (size_t i = 0; i < kept.size(); ++i)
    if (recorded.linked[i]) linked[i] = kept[i];
  const size_t outputs = trace_->outputs.size();
  const auto run = std::make_shared<Run>(Run{entry, recorded.heads, {}, {states.begin(), states.end()}});
  run->quick = entry->lends && thread_seconds() - start < kPatience;
  for (size_t i = outputs; i < out.size(); ++i) run->residuals.push_back(std::move(out[i]));
  while (out.size() > outputs) out.pop_back();
  for (int32_t head : recorded.heads) heads.push_back(out[size_t(head)].detached());
  TapeNode* node = record_custom(
      ctx, options_.name, linked, heads,
      [run](Context& c, TapeNode& entry, std::span<const Value> cotangents) {
        return backward(c, *run, entry, cotangents);
      },
      std::move(kept));
  if (node) {
    node->behind = recorded.behind;
    node->frozen_from = std::min(node->frozen_from, uint32_t(entry->joint.heads.size()));
  }
  for (size_t k = 0; k < heads.size(); ++k) out[size_t(recorded.heads[k])] = std::move(heads[k]);
  return out;
}

void Program::run_into(Context& ctx, std::span<Value> inputs, std::span<const RandomKey> states,
                       std::span<const Value> targets, Values& out) {
  const ScopedFlag quiet(ctx.recording, false);
  const std::shared_ptr<Entry> entry = find(ctx, inputs);
  pg::run(*entry->forward, ctx, inputs, states, targets, out);
}

Values Program::backward(Context& ctx, Run& run, TapeNode& node, std::span<const Value> cotangents) {
  Entry& entry = *run.entry;
  const Specialized& joint = entry.joint;
  const std::vector<Value>& inputs = node.held;  // followed by the leaves that the run has made
  const size_t first = entry.signature.types.size();
  for (size_t i = 0; i < first; ++i)
    if (node.inputs[i].node() && node.inputs[i].node()->needed && entry.signature.flows[i] == Flow::kNone)
      return all_gradients(ctx, run, node, cotangents);
  if (joint.wanted.empty()) return Values(inputs.size());
  Values arguments, found;
  if (ctx.recording) {
    for (const Value& v : inputs) arguments.push_back(v);
  } else {
    for (int32_t k : entry.kept) arguments.push_back(inputs[size_t(k)].detached());
    for (const Value& v : run.residuals) arguments.push_back(v);
  }
  for (size_t k = 0; k < joint.heads.size(); ++k) {
    const bool given = k < cotangents.size() && cotangents[k].defined();
    arguments.push_back(given ? cotangents[k] : make_filled(entry.head_types[k], 0));
  }
  if (ctx.recording) {
    const ScopedFlag training(ctx.training, entry.signature.training);
    found = entry.gradient_program().run_with(ctx, arguments, run.states);
  } else {
    const auto replaced = [&](int32_t output) { return node.replaced[size_t(joint.wanted[size_t(output)])]; };
    const Spare spare(replaced);
    const std::shared_ptr<const Plan> plan = entry.backward_plan(ctx);
    if (entry.residuals.bytes > Bytes()) {
      if (node.ends && is_block(entry.residuals, arguments)) {
        node.released = true;  // a second backward finds the node released, also if this one fails
        run.residuals.clear();
      } else {
        copy_block(ctx, entry.residuals, arguments);  // a later walk may need what the plan writes over
      }
    }
    const bool borrows = run.quick && !ctx.suspender && !node.replaced.empty() && all_wanted(joint, node);
    found = pg::run(*plan, ctx, arguments, run.states, borrows ? &spare : nullptr);
  }
  Values grads(inputs.size());
  for (size_t k = 0; k < joint.wanted.size(); ++k) grads[size_t(joint.wanted[k])] = std::move(found[k]);
  return grads;
}

namespace {

// Returns the input as a value that gradients flow to, regardless of the requests of its leaves. With `history`,
// gradients flow on into the history of the input.
Value flowing(Context& ctx, const Value& v, bool history) {
  if (!is_float(v.dtype()) || (history && asks_gradient(v))) return v;
  Value out[1] = {v.detached()};
  const auto pass_on = [](Context&, TapeNode&, std::span<const Value> dy) { return Values{dy[0]}; };
  if (history && v.has_node()) record_custom(ctx, std::string(kFlowing), {&v, 1}, out, pass_on);
  if (!out[0].has_node()) {
    const Ref<TapeNode> leaf = make_leaf(v.type(), GradReq::kNull);
    leaf->custom_name = kFlowing;
    out[0].link(leaf.get(), 0);
  }
  return out[0];
}

}  // namespace

// Runs the trace again with gradients flowing to all inputs.
Values Program::all_gradients(Context& ctx, const Run& run, const TapeNode& node, std::span<const Value> cotangents) {
  Entry& entry = *run.entry;
  Program& program = entry.whole_gradient_program();
  const Specialized& whole = entry.whole;
  const bool create = ctx.recording;
  Values arguments;
  for (const Value& v : node.held) arguments.push_back(flowing(ctx, v, create));
  for (size_t k = 0; k < whole.heads.size(); ++k) {
    const auto at = std::find(run.heads.begin(), run.heads.end(), whole.heads[k]) - run.heads.begin();
    const bool given = size_t(at) < cotangents.size() && cotangents[size_t(at)].defined();
    const Type& type = whole.graph.nodes[size_t(whole.graph.inputs[entry.signature.types.size() + k])].types[0];
    const Value dy = given ? cotangents[size_t(at)] : make_filled(type, 0);
    arguments.push_back(create && is_frozen(dy) ? flowing(ctx, dy, true) : dy);
  }
  const ScopedFlag recording(ctx.recording, true), training(ctx.training, entry.signature.training);
  const Values found = program.run_with(ctx, arguments, run.states);
  Values grads(node.held.size());
  for (size_t k = 0; k < whole.wanted.size(); ++k)
    grads[size_t(whole.wanted[k])] = create ? found[k] : found[k].detached();
  return grads;
}

}  // namespace pg
