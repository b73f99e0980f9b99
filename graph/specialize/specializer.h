// Specializer: the interpreter of traces that implements specialize(). Private to graph/specialize/.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "graph/specialize/interpret.h"
#include "tensor/tape.h"

namespace pg {

struct Layout;

// Returns the tape entries that backward from the heads visits.
std::unordered_set<const TapeNode*> history_of(std::span<const Value> heads);

// The outputs of a trace that the joint program takes cotangents of.
struct Heads {
  bool differentiate = true;
  std::vector<char> chosen;              // by output; if empty, all outputs that gradients flow through
  std::span<const int32_t> leaves = {};  // as for specialize()
};

class Specializer : public TraceInterpreter {
 public:
  Specializer(const Graph& trace, const Signature& signature, Heads heads = {});
  Specialized run();
  std::vector<char> flows;  // set by run(): whether gradients flow through an output

 private:
  Values add_inputs();
  size_t output_of(int32_t node) const;  // the first output that is output 0 of this node of the trace
  void differentiate(const Values& inputs, const Values& outputs, Specialized& out);

  Values apply_node(const Node& node) override;
  bool is_leaf(const Value& x) const override;
  Ref<TapeNode> new_leaf(const Type& type, GradReq req) override;
  Values gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                  uint64_t first) override;
  Backward backward_of(const std::shared_ptr<const Graph>& body) override;
  Values control(const Node& node, const Values& in) override {
    Control control = control_of(node);
    control.line = builder_.current_line;
    return control.is_loop() ? loop(std::move(control), in) : cond(control, in);
  }

  // Branches and loops: see control.cpp and loop_gradient.cpp.
  struct Applied;
  Values cond(const Control& control, const Values& in);
  Values cond_gradient(const Applied& applied, std::span<const Value> dys);
  Values loop(Control control, Values in);
  std::vector<char> reached_carries(const Layout& at, const Signature& given) const;
  void close_condition(Control& control, Values& in);
  struct StepBack;
  class ReverseLoop;
  Values loop_gradient(const Applied& applied, std::span<const Value> dys);
  StepBack step_back_again(const Applied& applied, const Specialized& joint);
  StepBack step_back_kept(const Applied& applied, Specialized joint);
  Values extend_loop(const Applied& applied, Graph forward, size_t outputs);
  // Checkpointed loops: see checkpoint.cpp.
  Values checkpointed(const Control& control, const Values& in);
  Values checkpointed_while(const Control& control, const Values& in, int64_t size);
  void close_count(Control& control, Values& in);
  Signature body_signature(const Graph& body) const;
  Values emit_control(std::shared_ptr<Applied> applied,
                      Values (Specializer::*gradient)(const Applied&, std::span<const Value>));
  Value zeros(const Type& type) { return builder_.filled(ctx_, type, 0); }

  const Graph& trace_;
  const Signature& signature_;
  Heads heads_;
  Context own_ctx_;
  GraphBuilder builder_;
  std::vector<Extension> extensions_;
  std::vector<Ref<TapeNode>> input_leaves_;        // by input; null if no gradients flow to it
  Values results_;                                 // the outputs of run(), with their history
  std::unordered_set<const TapeNode*> histories_;  // tape nodes of recorded inputs, which are not leaves to a script
};

}  // namespace pg
