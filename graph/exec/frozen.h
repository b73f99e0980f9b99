// FrozenGraph: a model that owns the values of its parameters and states, for any number of threads at once.
#pragma once
#include <mutex>

#include "graph/exec/program.h"
#include "graph/io/model.h"
#include "tensor/function_ref.h"

namespace pg {

class FrozenGraph : public RefCounted<FrozenGraph> {
 public:
  // `values`: of the model's inputs, undefined for arguments; they are copied. `default_state`: of the default
  // generator.
  FrozenGraph(Model model, std::span<const Value> values, RandomKey default_state);
  static void destroy(FrozenGraph* graph) { delete graph; }

  // One value for each argument input, in their order → the tensors among the leaves of the results, in walking order.
  // Every run takes the states as the last finished one left them and puts all of its own in place at once, after it
  // has succeeded. Nothing is recorded. Each thread needs a context of its own.
  Values run(Context& ctx, std::span<const Value> arguments);

  const Model& model() const { return model_; }
  Values values() const;  // of the inputs now, undefined for arguments
  size_t argument_count() const { return arguments_.size(); }

 private:
  Values start(std::span<const Value> arguments, std::vector<RandomKey>& keys);
  void finish(const Values& out);

  Model model_;
  Ref<Program> program_;
  std::vector<int32_t> arguments_;  // which inputs are arguments
  mutable std::mutex mutex_;
  Values slots_;  // by input
  std::vector<RandomKey> generators_;
};

// The tensors among the leaves of the results: outputs of a run and inputs after it, in walking order.
void for_each_leaf(const std::vector<Tree>& trees, FunctionRef<void(const Tree&)> f);

}  // namespace pg
