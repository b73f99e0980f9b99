// Specializer: the interpreter of traces behind specialize(). Private to graph/specialize*.cpp.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "graph/specialize/interpret.h"
#include "tensor/tape.h"

namespace pg {

// Which outputs of a trace the joint program takes cotangents of.
struct Heads {
  bool differentiate = true;
  std::vector<char> chosen;  // by output; empty: all that gradients flow through
};

class Specializer : public TraceInterpreter {
 public:
  Specializer(const Graph& trace, const Signature& signature, Heads heads = {});
  Specialized run();
  std::vector<char> flows;  // after run(): which outputs gradients flow through

 private:
  Values add_inputs();
  void differentiate(const Values& inputs, const Values& outputs, Specialized& out);

  Values apply_node(const Node& node) override;
  bool is_leaf(const Value& x) const override;
  Ref<TapeNode> new_leaf(const Type& type, GradReq req) override;
  Backward backward_of(const std::shared_ptr<const Graph>& body) override;
  Values control(const Node& node, const Values& in) override {
    return node.kind == NodeKind::kCond ? cond(node, in) : loop(node, in);
  }

  // Branches and loops: graph/specialize/control.cpp.
  struct Applied;
  Values cond(const Node& node, const Values& in);
  Values cond_gradient(const Applied& applied, std::span<const Value> dys);
  Values loop(Node node, Values in);
  void close_condition(Node& node, Values& in);
  struct StepBack;
  class ReverseLoop;
  Values loop_gradient(const Applied& applied, std::span<const Value> dys);
  StepBack step_back_again(const Applied& applied, const Specialized& joint);
  StepBack step_back_kept(const Applied& applied, Specialized joint);
  void keep_for_backward(int32_t at, Graph forward, size_t outputs);
  // graph/specialize/checkpoint.cpp
  Values checkpointed(const Node& node, const Values& in);
  Values checkpointed_while(const Node& node, const Values& in, int64_t size);
  void close_count(Node& node, Values& in);
  Signature body_signature(const Graph& body) const;
  Values emit_control(std::shared_ptr<Applied> applied,
                      Values (Specializer::*gradient)(const Applied&, std::span<const Value>));
  Value zeros(const Type& type) { return builder_.filled(ctx_, type, 0); }

  const Graph& trace_;
  const Signature& signature_;
  Heads heads_;
  Context own_ctx_;
  GraphBuilder builder_;
  std::vector<Ref<TapeNode>> input_leaves_;
  std::unordered_set<const TapeNode*> histories_;  // those of recorded values, which are no leaves to a script
};

}  // namespace pg
