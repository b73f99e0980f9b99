// Replay: the interpreter of traces behind specialize(). Private to graph/specialize*.cpp.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "graph/specialize.h"
#include "tensor/tape.h"

namespace pg {

// Which outputs of a trace the joint program takes cotangents of.
struct Heads {
  bool differentiate = true;
  std::vector<char> chosen;  // by output; empty: all that gradients flow through
};

class Replay {
 public:
  Replay(const Graph& trace, const Signature& signature, Heads heads = {});
  Specialized run();
  std::vector<char> flows;  // after run(): which outputs gradients flow through

 private:
  const Value& value(const Operand& operand) const { return values_[size_t(operand.node)][size_t(operand.output)]; }
  void add_inputs();
  // Those of a graph, each to be checked as soon as its node has its type: before an op that relies on it.
  class Guards {
   public:
    explicit Guards(const Graph& graph);
    void check(Replay& replay, size_t i);  // after node i

   private:
    const Graph& graph_;
    std::vector<const TypeGuard*> sorted_;
    size_t next_ = 0;
  };
  void check_one(const TypeGuard& guard, const Graph& of);
  Values gather(std::span<const Operand> operands) const;
  void replay(size_t i);
  Values results(const Node& node);
  Value as_leaf(const Value& v, GradReq req);
  Value write(const Node& node, const Value& old, const Value& now);
  Values gradient(const Node& node, const Values& in);
  // Heads without history contribute nothing.
  Values flowing_gradients(const Values& heads, const Values& cotangents, const Values& wanted, BackwardOptions options);
  uint64_t sequence_of(size_t node) const { return node < first_sequences_.size() ? first_sequences_[node] : ctx_.next_sequence; }
  Values custom(const Node& node, const Values& in);
  // The outputs of a closed graph, applied here.
  Values inlined(const Graph& body, const Values& arguments);
  void differentiate(const Values& outputs, Specialized& out);

  // Branches and loops: graph/specialize_control.cpp.
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
  // graph/specialize_checkpoint.cpp
  Values checkpointed(const Node& node, const Values& in);
  Values checkpointed_while(const Node& node, const Values& in, int64_t size);
  void close_count(Node& node, Values& in);
  Signature body_signature(const Graph& body) const;
  Values emit_control(std::shared_ptr<Applied> applied, Values (Replay::*gradient)(const Applied&, std::span<const Value>));
  Value zeros(const Type& type) { return builder_.filled(ctx_, type, 0); }

  const Graph& trace_;
  const Signature& signature_;
  Heads heads_;
  Context ctx_;
  GraphBuilder builder_;
  std::vector<Values> values_;
  const Graph* of_ = &trace_;  // whose nodes are replayed
  std::vector<uint64_t> first_sequences_;
  Values inputs_;
  std::vector<Ref<TapeNode>> leaves_;
  std::unordered_set<const TapeNode*> histories_;  // those of recorded values, which are no leaves to a script
};

}  // namespace pg
