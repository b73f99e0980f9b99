// What a program keeps for the types of one call: its plans, and what a gradient of it needs.
#pragma once
#include <mutex>

#include "graph/exec/program.h"
#include "graph/exec/residuals.h"
#include "graph/specialize/specialize.h"

namespace pg {

// The name of the tape entries of frozen tensors that gradients flow to.
inline constexpr std::string_view kFlowing = "frozen tensor of a graph";
Flow flow_of(const Value& v);

struct Program::Entry {
  Signature signature;
  bool exact_flows;
  Options options;
  std::shared_ptr<const Graph> trace;
  std::vector<int32_t> leaves;      // as Program::leaves_
  Specialized joint;                // without its graph
  SmallVector<Type, 1> head_types;  // by head of `joint`
  std::shared_ptr<const Plan> forward, backward;
  std::vector<int32_t> kept;
  bool lends = false;    // backward writes gradients over the old ones
  ValueBlock residuals;  // the inputs of backward that forward leaves in a block
  std::shared_ptr<KeptShelf> shelf;
  size_t nodes = 0;  // of both graphs
  std::mutex mutex;  // guards the members below, which are made on first use:
  Graph backward_graph;
  Ref<Program> differentiable;  // (inputs, cotangents) → gradients, for create_graph
  Specialized whole;            // the lists of the program that returns the gradients of all inputs
  Ref<Program> whole_gradient;

  Entry(const Program& program, Signature given);
  bool fits(std::span<const Value> inputs, bool recording, bool training) const;
  // Makes the lists of `joint` and the graph of backward, and returns the graph of forward.
  Graph differentiate();
  std::shared_ptr<const Plan> backward_plan(Context& ctx);
  Program& gradient_program();
  // The same for all heads and all inputs. Used if the caller needs a gradient that the request kNull left out.
  Program& whole_gradient_program();
  Options gradient_options() const;
  // inputs: by input of the plan, the input of the call.
  PlanOptions plan_options(std::span<const int32_t> inputs) const;
};

}  // namespace pg
