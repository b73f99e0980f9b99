#include "graph/exec/frozen.h"

#include <algorithm>
#include <utility>

#include "tensor/tape.h"

namespace pg {
namespace {

Value copied(const Value& value) {
  if (!value.defined()) return {};
  Context ctx;
  const Value whole = to_contiguous(ctx, value.detached());
  if (!(whole.array_ref() == value.array_ref())) return whole;
  Value in[] = {whole};
  return apply(ctx, op_named<"clone">(), in, {})[0];
}

bool computes_gradients(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.kind == NodeKind::kGradient; });
}

// The leaf of a parameter for which the graph computes gradients. Nothing writes its gradient, which takes no memory.
Ref<TapeNode> new_leaf(const ModelInput& input, const Type& type) {
  Ref<TapeNode> leaf(new TapeNode);
  leaf->leaf = true;
  leaf->req = input.req;
  leaf->leaf_type = type;
  leaf->grad = Ref<Cell>(new Cell);
  return leaf;
}

// While a run has its turn its job is not suspended, since others wait for that turn.
class Unsuspended {
 public:
  explicit Unsuspended(Context* ctx) : ctx_(ctx), saved_(ctx ? std::exchange(ctx->suspender, nullptr) : nullptr) {}
  Unsuspended(const Unsuspended&) = delete;
  ~Unsuspended() {
    if (ctx_) ctx_->suspender = saved_;
  }

 private:
  Context* ctx_;
  Suspender* saved_;
};

RandomKey advanced(RandomKey key, uint64_t ticks) { return {key.seed, key.tick + ticks}; }

void walk(const Tree& tree, FunctionRef<void(const Tree&)> f) {
  if (tree.kind == Tree::Kind::kInput || tree.kind == Tree::Kind::kOutput) f(tree);
  for (const Tree& value : tree.values) walk(value, f);
}

}  // namespace

void for_each_leaf(const std::vector<Tree>& trees, FunctionRef<void(const Tree&)> f) {
  for (const Tree& tree : trees) walk(tree, f);
}

FrozenGraph::FrozenGraph(Model model, std::span<const Value> values, RandomKey default_state)
    : model_(std::move(model)) {
  Program::Options options;
  options.name = model_.name;
  options.lasting = lasting_inputs(model_);
  std::vector<Ref<Generator>> none;
  program_ = Ref<Program>(new Program(model_.graph, none, options));
  for (size_t k = 0; k < model_.inputs.size(); ++k) {
    const bool argument = model_.inputs[k].role == ModelInput::Role::kArgument;
    if (argument) arguments_.push_back(int32_t(k));
    if (!argument && !values[k].defined())
      throw Error(fmt::format("'{}' has no value: the model needs a file of weights", model_.inputs[k].name));
    slots_.push_back(argument ? Value() : copied(values[k]));
  }
  const bool trains = computes_gradients(model_.graph);
  for (size_t k = 0; k < model_.inputs.size(); ++k) {
    const ModelInput& input = model_.inputs[k];
    const bool is_leaf = trains && input.role == ModelInput::Role::kParameter && input.differentiable &&
                         is_float(model_.input_type(k).dtype);
    leaves_.push_back(is_leaf ? new_leaf(input, model_.input_type(k)) : Ref<TapeNode>());
  }
  for (const ModelGenerator& generator : model_.generators)
    generators_.push_back(generator.is_default ? default_state : generator.state);
  bool direct = true;
  for_each_leaf(model_.results, [&](const Tree& leaf) {
    const bool output = leaf.kind == Tree::Kind::kOutput && !is_written(size_t(leaf.index));
    direct = direct && output && std::find(direct_.begin(), direct_.end(), int32_t(leaf.index)) == direct_.end();
    direct_.push_back(int32_t(leaf.index));
  });
  if (!direct) direct_.clear();
}

Values FrozenGraph::values() const {
  const std::lock_guard lock(mutex_);
  return slots_;
}

void FrozenGraph::Workspace::clear() {
  for (Values* values : {&inputs, &shared, &outputs, &targets}) values->clear();
  keys.clear();
}

bool FrozenGraph::is_written(size_t output) const {
  for (const Model::Write& write : model_.writes)
    if (size_t(write.output) == output) return true;
  return false;
}

// `shared` has a second reference of each input, so that no buffer is writable.
void FrozenGraph::start(Generator* generator, std::span<const Value> arguments, Workspace& work) {
  if (arguments.size() != arguments_.size())
    throw Error(fmt::format("{}: takes {} tensors, got {}", model_.name, arguments_.size(), arguments.size()));
  const std::lock_guard lock(mutex_);
  for (const Value& slot : slots_) work.inputs.push_back(slot);
  for (size_t k = 0; k < work.inputs.size(); ++k)
    if (leaves_[k]) work.inputs[k].link(leaves_[k].get(), 0);
  for (size_t k = 0; k < arguments.size(); ++k) work.inputs[size_t(arguments_[k])] = arguments[k].detached();
  for (const Value& input : work.inputs) work.shared.push_back(input);
  for (size_t g = 0; g < generators_.size(); ++g) {
    const RandomKey key = generator && model_.generators[g].is_default ? generator->state() : generators_[g];
    work.keys.push_back(key);
    move(generator, g, key, advanced(key, model_.graph.ticks[g]));
  }
}

// Moves generator g of the model if its state is `from`.
void FrozenGraph::move(Generator* generator, size_t g, RandomKey from, RandomKey to) {
  if (!generator || !model_.generators[g].is_default) {
    if (generators_[g] == from) generators_[g] = to;
  } else if (generator->state() == from) {
    generator->set_state(to);
  }
}

// Returns random numbers that a failed run has not used, unless another run has started since.
void FrozenGraph::take_back(Generator* generator, const std::vector<RandomKey>& keys) {
  const std::lock_guard lock(mutex_);
  for (size_t g = 0; g < keys.size(); ++g) move(generator, g, advanced(keys[g], model_.graph.ticks[g]), keys[g]);
}

void FrozenGraph::finish(const Values& out) {
  const std::lock_guard lock(mutex_);
  for (const Model::Write& write : model_.writes)
    if (model_.inputs[size_t(write.input)].role != ModelInput::Role::kArgument)
      slots_[size_t(write.input)] = out[size_t(write.output)].detached();
}

void FrozenGraph::execute(Context& ctx, Workspace& work) {
  try {
    program_->run_into(ctx, work.inputs, work.keys, work.targets, work.outputs);
  } catch (const Retrace& e) {
    throw Error(fmt::format("{}: this graph holds for other types only: {}", model_.name, e.what()));
  }
}

Values FrozenGraph::run(Context& ctx, std::span<const Value> arguments) {
  Workspace work;
  Values results;
  run(ctx, ctx.generator.get(), arguments, {}, work, results, [] {});
  return results;
}

void FrozenGraph::run(Context& ctx, Generator* generator, std::span<const Value> arguments,
                      std::span<const Value> targets, Workspace& work, Values& results, FunctionRef<void()> accept) {
  struct Cleared {
    FrozenGraph& graph;
    Generator* generator;
    Workspace& work;
    bool succeeded = false;
    ~Cleared() {
      if (!succeeded) graph.take_back(generator, work.keys);
      work.clear();
    }
  } cleared{*this, generator, work};
  results.clear();
  std::unique_lock turn(turn_, std::defer_lock);
  const Unsuspended whole(model_.writes.empty() ? nullptr : &ctx);
  if (!model_.writes.empty()) turn.lock();
  start(generator, arguments, work);
  if (!targets.empty() && targets.size() == direct_.size()) {
    while (work.targets.size() < model_.graph.outputs.size()) work.targets.emplace_back();
    for (size_t i = 0; i < targets.size(); ++i) work.targets[size_t(direct_[i])] = targets[i].detached();
  }
  execute(ctx, work);
  for_each_leaf(model_.results, [&](const Tree& leaf) {
    if (leaf.kind == Tree::Kind::kOutput) return results.push_back(work.outputs[size_t(leaf.index)]);
    Value value = work.shared[size_t(leaf.index)];
    for (const Model::Write& write : model_.writes)
      if (write.input == leaf.index) value = work.outputs[size_t(write.output)];
    results.push_back(std::move(value));
  });
  accept();
  if (!model_.writes.empty()) finish(work.outputs);
  cleared.succeeded = true;
}

}  // namespace pg
