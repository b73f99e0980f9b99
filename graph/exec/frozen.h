// FrozenGraph: a model that owns the values of its parameters and states. Several threads may run it at once.
#pragma once
#include <mutex>

#include "graph/exec/program.h"
#include "graph/io/model.h"
#include "tensor/function_ref.h"

namespace pg {

class FrozenGraph : public RefCounted<FrozenGraph> {
 public:
  // Copies `values`, which are those of the model's inputs, undefined for arguments.
  FrozenGraph(Model model, std::span<const Value> values, RandomKey default_state);
  static void destroy(FrozenGraph* graph) { delete graph; }

  // Takes one value per argument input, in their order. Returns the tensors among the leaves of the results, in the
  // order of the tree. A graph that writes states runs for one caller at a time: each run reads what the last one
  // wrote, and writes all its states at once after it has succeeded. Nothing is recorded. Each thread needs its own
  // context, whose default generator the run advances.
  Values run(Context& ctx, std::span<const Value> arguments);

  // Lists that runs reuse. They are empty between runs.
  struct Workspace {
    Values inputs, shared, outputs, targets;
    std::vector<RandomKey> keys;
    void clear();
  };
  // The same with the results in `results`, which is cleared first. targets: none, or one contiguous array per result,
  // which no script has and which overlaps no argument and no other target. A result is its target if the run could
  // write there. If the run throws, the elements of targets are unspecified, unless a target has another type than its
  // result: then none is written. generator: the default one, or null for one that all such callers share, which starts
  // from `default_state`. accept() is called once the results are there; if it throws, no state is written. A run
  // repeated with its workspace, results, types and targets allocates nothing.
  void run(Context& ctx, Generator* generator, std::span<const Value> arguments, std::span<const Value> targets,
           Workspace& work, Values& results, FunctionRef<void()> accept);

  const Model& model() const { return model_; }
  Values values() const;  // current values of the inputs, undefined for arguments
  size_t argument_count() const { return arguments_.size(); }

 private:
  void start(Generator* generator, std::span<const Value> arguments, Workspace& work);
  void move(Generator* generator, size_t g, RandomKey from, RandomKey to);
  void take_back(Generator* generator, const std::vector<RandomKey>& keys);
  void execute(Context& ctx, Workspace& work);
  void finish(const Values& out);
  bool is_written(size_t output) const;

  Model model_;
  Ref<Program> program_;
  std::vector<int32_t> arguments_;  // numbers of the inputs that are arguments
  std::vector<int32_t> direct_;     // the outputs that are the results, if each is one output that is no state
  std::mutex turn_;                 // held by a run that writes states
  mutable std::mutex mutex_;
  Values slots_;                       // by input
  std::vector<Ref<TapeNode>> leaves_;  // by input; null where the graph computes no gradient
  std::vector<RandomKey> generators_;  // by generator of the model
};

// Calls f for the tensors among the leaves of the results (outputs of a run, and inputs after it), in the order of the
// tree.
void for_each_leaf(const std::vector<Tree>& trees, FunctionRef<void(const Tree&)> f);

}  // namespace pg
