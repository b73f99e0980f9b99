// The only interpreter of traces. It applies the nodes of a graph again, in order, through ctx.interpreter. A subclass
// defines the kinds of nodes that are not ops. Specialization, replay into another trace and eager replay differ only
// in that.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "graph/specialize/specialize.h"

namespace pg {

class TraceInterpreter {
 public:
  virtual ~TraceInterpreter() = default;

 protected:
  explicit TraceInterpreter(Context& ctx) : ctx_(ctx) {}

  // Returns the outputs of the graph for these inputs. Modes that the graph leaves open are those of the context.
  // Throws Retrace on a guard failure.
  Values interpret(const Graph& graph, std::span<const Value> inputs);
  const Graph& graph() const { return *frame_->graph; }  // the innermost graph being interpreted

  // Wraps the application of a node, for positions and names in errors. By default the op has the name that the script
  // used.
  virtual Values apply_node(const Node& node);
  Values results(const Node& node);
  std::string_view name_of(const Node& node) const;  // the name that the script used, or ""

  // Returns the state of a generator at the start of the run. By default random keys stay as they are in the graph.
  virtual RandomKey state_of(uint64_t generator) const { return {generator, 0}; }
  virtual void held(const TypeGuard&, const Value&) {}  // called for each guard that holds

  // The kinds of nodes. The defaults suit an interpreter that runs with all values known: gradients come from the rules
  // of the tape.
  virtual Value detach(const Value& x) { return x.detached(); }
  virtual Value leaf(const Node& node, const Value& x);
  virtual bool is_leaf(const Value& x) const { return pg::is_leaf(x.node()); }
  virtual Ref<TapeNode> new_leaf(const Type& type, GradReq req) { return make_leaf(type, req); }
  virtual Value write(const Node& node, const Value& old, const Value& now);
  virtual Values gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                          uint64_t first);
  virtual Values custom(const Node& node, const Values& inputs, Values outputs, const Values& saved);
  virtual Values control(const Node& node, const Values& in) = 0;  // branches and loops

  // Runs the backward of a Function. It may be called after the interpreter is destroyed.
  using Backward = std::function<Values(Context& ctx, std::span<const Value> arguments)>;
  virtual Backward backward_of(const std::shared_ptr<const Graph>& body) = 0;

  Value as_leaf(const Value& x, GradReq req);
  Context& ctx_;
  std::vector<Ref<TapeNode>> leaves_;  // made by nodes

 private:
  // The state of one graph that is being interpreted.
  struct Frame {
    const Graph* graph;
    std::vector<Values> values;            // by node
    std::vector<uint64_t> sequences;       // the tape's sequence number before each node
    std::vector<const TypeGuard*> guards;  // in the order of the nodes
    size_t next_guard = 0;
  };
  const Value& value(const Operand& operand) const {
    return frame_->values[size_t(operand.node)][size_t(operand.output)];
  }
  Values gather(std::span<const Operand> operands) const;
  void check_guards(size_t node);
  Attrs attrs_of(const Node& node) const;

  Frame* frame_ = nullptr;
};

}  // namespace pg
