// Lowering: turns the nodes of a graph into drafts of steps. Every output of a node is a value, and every value lies in
// a storage. Views share the storage of what they view. Private to graph/plan/.
#pragma once
#include <memory>
#include <vector>

#include "graph/plan/fused.h"
#include "graph/plan/plan.h"
#include "tensor/context.h"

namespace pg {

// What the planner knows about one output of a node.
struct PlanValue {
  int32_t storage = -1;
  int32_t root = -1;             // the value that the storage was made for; for a view another value than itself
  Ref<Array> layout;             // the offset counts elements from the start of the storage
  int32_t contiguous_copy = -1;  // a contiguous value with the same elements
  int32_t readers = 0;           // number of nodes that read it
  int32_t view = -1;             // the view in Plan::views that its step writes
  bool returned = false;
};

// A step whose place in memory is not known yet.
struct Draft {
  const OpDef* op;
  KernelFn kernel;
  const Attrs* attrs;
  int32_t line;
  std::vector<int32_t> in;  // values; -1: absent
  std::vector<int32_t> out;
  bool commit = false;
  bool total = false;      // of a step of the commit section: it cannot fail
  bool invariant = false;  // see Plan::invariant
  Device device = {};
  std::shared_ptr<const FusedKernel> fused = nullptr;
  const Graph* body = nullptr;  // of a fused step
  std::shared_ptr<const PreparedKernel> prepared = nullptr;
  std::vector<int32_t> scratch = {};  // values
  std::unique_ptr<ControlStep> control = nullptr;
};

class Lowering {
 protected:
  Lowering(const Graph& graph, const PlanOptions& options)
      : graph_(graph), plan_(std::make_shared<Plan>()), changing_(graph.inputs.size()), replaced_(graph.inputs.size()) {
    plan_->options = options;
    for (int32_t input : options.changing) changing_[size_t(input)] = true;
    for (const Replacement& r : options.replacements) replaced_[size_t(r.input)] = true;
  }

  using Made = std::vector<std::vector<int32_t>>;  // by node: the values of its outputs

  void add_inputs(const Graph& graph);  // input i has storage i and value i
  std::vector<int32_t> input_values() const;

  // Turns the nodes of a graph, or of the body of a fused node, into steps. Returns the values of its outputs. `line`
  // is for nodes without a line.
  std::vector<int32_t> lower(const Graph& graph, const std::vector<int32_t>& inputs, int32_t line);

  int32_t add_array(const Type& type, Storage::Kind kind = Storage::kArena);
  int32_t add_copy(int32_t from, int32_t to, int32_t line);
  const Array& layout(int32_t value) const { return *values_[size_t(value)].layout; }
  const Storage& storage_of(int32_t value) const { return plan_->storages[size_t(values_[size_t(value)].storage)]; }
  Storage& storage_of(int32_t value) { return plan_->storages[size_t(values_[size_t(value)].storage)]; }

  const Graph& graph_;
  std::shared_ptr<Plan> plan_;
  std::vector<PlanValue> values_;
  std::vector<Draft> drafts_;
  bool is_changing(int32_t value) const;  // see PlanOptions::changing
  bool keeps_source_ = false;             // see Plan::source

 private:
  int32_t add_storage(Storage::Kind kind, const Type& type, int32_t index = -1);
  int32_t add_value(int32_t storage, Ref<Array> layout, int32_t root = -1);
  int32_t add_scratch(Device device, Bytes bytes);
  int32_t add_constant(const Value& constant);
  int32_t add_immediate(double number, DType dtype);
  int32_t add_stack(const Type& type);
  const std::vector<int32_t>& add_draft(Draft draft);
  bool is_invariant(const Draft& draft) const;

  std::vector<int32_t> lower_op(const Node& node, const Made& made, int32_t line);
  std::vector<int32_t> lower_fused(const Node& node, const Made& made, int32_t line);
  std::vector<int32_t> lower_control(const Node& node, const Made& made, int32_t line);
  std::vector<int32_t> fused_inputs(const Node& node, const Made& made);
  static bool is_unlimited_stack(const ControlStep& control, size_t output);
  static int32_t block_on(ControlStep& control, Device device);
  static void lay_out(ControlStep& control);

  SmallVector<Value, 4> infer_values(const Node& node, const std::vector<int32_t>& in) const;
  bool view_values(const Node& node, int32_t input, std::vector<int32_t>& out);
  int32_t contiguous(int32_t value, int32_t line);
  bool has_work(const Draft& step) const;
  View type_view(int32_t value) const;
  void prepare(Draft& step, PrepareFn make);
  bool may_last(int32_t value);
  const Attrs* keep_attrs(const Attrs& attrs);

  std::vector<char> changing_, replaced_;  // by input: see PlanOptions
  bool effects_ = false;                   // an earlier step has an effect
};

}  // namespace pg
