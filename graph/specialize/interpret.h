// The one interpreter of traces. It applies the nodes of a graph again, in order, through ctx.interpreter; a subclass
// says what the nodes do that are no ops. Specialization, a graph within a trace and an eager run differ in nothing
// else.
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

  // The outputs of the graph for these inputs. Modes that it leaves open are those of the context.
  // Throws Retrace where a guard of the graph does not hold.
  Values interpret(const Graph& graph, std::span<const Value> inputs);
  const Graph& graph() const { return *frame_->graph; }  // the innermost one under way

  // What surrounds a node: positions and names of errors. By default the op has the name that the script called it by.
  virtual Values apply_node(const Node& node);
  Values results(const Node& node);
  std::string_view name_of(const Node& node) const;  // that name, or ""

  // The state of a generator at the start. By default random keys stay as they are in the graph.
  virtual RandomKey state_of(uint64_t generator) const { return {generator, 0}; }
  virtual void held(const TypeGuard&, const Value&) {}  // told of each guard that holds

  // The kinds of nodes. By default all is known that a run decides: gradients come out of the tape's rules.
  virtual Value detach(const Value& x) { return x.detached(); }
  virtual Value leaf(const Node& node, const Value& x);
  virtual bool is_leaf(const Value& x) const { return pg::is_leaf(x.node()); }
  virtual Ref<TapeNode> new_leaf(const Type& type, GradReq req) { return make_leaf(type, req); }
  virtual Value write(const Node& node, const Value& old, const Value& now);
  virtual Values gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                          uint64_t first);
  virtual Values custom(const Node& node, const Values& inputs, Values outputs, const Values& saved);
  virtual Values control(const Node& node, const Values& in) = 0;  // kCond and kLoop

  // Runs the backward of a Function, which may be after the interpreter is gone.
  using Backward = std::function<Values(Context& ctx, std::span<const Value> arguments)>;
  virtual Backward backward_of(const std::shared_ptr<const Graph>& body) = 0;

  Value as_leaf(const Value& x, GradReq req);
  Context& ctx_;
  std::vector<Ref<TapeNode>> leaves_;  // that nodes have made

 private:
  // One graph under way.
  struct Frame {
    const Graph* graph;
    std::vector<Values> values;            // by node
    std::vector<uint64_t> sequences;       // of the tape before each node
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
