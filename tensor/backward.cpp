// Reverse mode: visits each node once, in descending sequence. Rules are written in ops, so the walk is itself recorded
// with create_graph.
#include <algorithm>
#include <set>

#include "tensor/anomaly.h"
#include "tensor/observer.h"
#include "tensor/range.h"
#include "tensor/recompute.h"
#include "tensor/rule.h"
#include "tensor/tape.h"

namespace pg {
namespace {

Value call_op(Context& ctx, const OpDef& op, Value x, AttrList attrs) {
  Value in[1] = {std::move(x)};
  return apply(ctx, op, in, make_attrs(op, attrs))[0];
}

// One walk over the part of the tape that some heads depend on. It marks the nodes. Other walks may start or end while
// it calls a rule, on the same nodes: those of the rule, and those of other jobs while this one is suspended.
class Walk {
 public:
  Walk(Context& ctx, const BackwardOptions& options)
      : ctx_(ctx), options_(options), id_(ctx.next_walk++), before_(std::exchange(ctx.marking_walk, id_)) {}
  // Restores the marks of the enclosing walk, whose rule started this one.
  ~Walk() {
    for (const Visit& v : visits_) v.node->walk = v.walk, v.node->slot = v.slot, v.node->needed = v.needed;
    ctx_.marking_walk = ctx_.marking_walk == id_ ? before_ : 0;
  }
  Walk(const Walk&) = delete;

  void collect(std::span<const Value> heads) {
    std::vector<Place> stack;
    for (const Value& head : heads) reach(head, stack);
    while (!stack.empty()) {
      const auto [node, output] = stack.back();
      stack.pop_back();
      if (ends_at(*node)) continue;
      if (node->behind)
        for (int32_t k : (*node->behind)[output]) reach(node->inputs[size_t(k)], stack);
      else
        for (const Value& input : node->inputs) reach(input, stack);
    }
    // Stable, so that leaves, which have no sequence, keep the order in which they were met.
    std::stable_sort(nodes_.begin(), nodes_.end(),
                     [](const Ref<TapeNode>& a, const Ref<TapeNode>& b) { return a->sequence > b->sequence; });
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->slot = uint32_t(i);
    cotangents_.resize(nodes_.size());
    needed_.resize(nodes_.size(), false);
  }

  const std::vector<Ref<TapeNode>>& nodes() const { return nodes_; }
  bool reached(const TapeNode* node) {
    renew_marks();
    return node->walk == id_;
  }
  void need(const TapeNode* node) { needed_[node->slot] = true; }

  // A node is needed when one of its inputs is. Inputs have a lower sequence, so they come later in the list. The first
  // node that is found here to read a leaf is therefore the last one of the walk that contributes to it.
  void spread_needs() {
    std::vector<char> read(nodes_.size(), false);
    for (size_t i = nodes_.size(); i-- > 0;) {
      TapeNode& node = *nodes_[i];
      for (size_t k = ends_at(node) ? 0 : node.inputs.size(); k-- > 0;) {
        const TapeNode* input = node.inputs[k].node();
        if (!input || !needs(node.inputs[k])) continue;
        needed_[i] = true;
        if (input->leaf && !std::exchange(read[input->slot], true)) finals_.push_back({i + 1, input->slot});
      }
      node.needed = needed_[i];
      if (needed_[i] && !node.leaf) last_ = std::max(last_, i);
    }
    for (size_t i = nodes_.size(); i-- > 0;)
      if (nodes_[i]->leaf && needed_[i] && !read[i]) finals_.push_back({0, uint32_t(i)});
    std::reverse(finals_.begin(), finals_.end());
  }

  // The needed leaves, in the order in which their gradients become final.
  std::vector<TapeNode*> leaves() const {
    std::vector<TapeNode*> out;
    for (const Final& final : finals_) out.push_back(nodes_[final.leaf].get());
    return out;
  }

  void seed(const Value& head, const Value& cotangent) {
    if (!head.node()) return;
    Value start = cotangent.defined() ? fit(cotangent, head.type()) : ctx_.interpreter->filled(ctx_, head.type(), 1);
    add(*head.node(), head.node_output(), std::move(start));
  }

  // Runs all rules. Calls `keep` with each needed node as soon as its cotangents are final, before they are dropped.
  // stores: keep stores the gradients of leaves as they are, after the walk, and cannot fail.
  void run(FunctionRef<void(TapeNode&, std::span<Value>)> keep, bool stores = false) {
    ScopedFlag recording(ctx_.recording, options_.create_graph);
    auto final = finals_.begin();
    const auto keep_leaves = [&](size_t after) {
      for (; final != finals_.end() && final->after == after; ++final) {
        keep(*nodes_[final->leaf], cotangents_[final->leaf]);
        cotangents_[final->leaf].clear();
      }
    };
    keep_leaves(0);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      TapeNode& node = *nodes_[i];
      if (node.leaf) continue;
      if (needed_[i]) keep(node, cotangents_[i]);
      const bool onward = needed_[i] && leads_on(node);  // false when only the node's own gradient is wanted
      node.ends = onward && !options_.retain_graph;
      if (onward) {
        Replaced replaced(node);
        if (stores && i == last_ && node.custom) find_replaced(node, replaced);
        propagate(node, cotangents_[i]);
      }
      cotangents_[i].clear();
      keep_leaves(i + 1);
      if (onward && !options_.retain_graph) release(node);
    }
  }

  // Releases the tape without running it. A trace needs this, because it walks the tape once per set of types.
  void release_needed() {
    if (options_.retain_graph) return;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (needed_[i] && leads_on(*nodes_[i])) release(*nodes_[i]);
  }

 private:
  using Cotangents = SmallVector<Value, 1>;

  using Place = std::pair<TapeNode*, uint32_t>;  // an output of a node

  void reach(const Value& v, std::vector<Place>& stack) {
    TapeNode* node = v.node();
    if (!node) return;
    if (node->behind && places_.emplace(node, v.node_output()).second) stack.emplace_back(node, v.node_output());
    if (node->walk == id_) return;
    if (node->released)
      throw Error(
          "backward: an earlier backward, finished or failed, has released the graph of this result; "
          "pass retain_graph = true to the first backward");
    nodes_.emplace_back(node);
    visits_.push_back({node, node->walk, node->slot, node->needed});
    node->walk = id_;
    if (!node->behind) stack.emplace_back(node, 0);
  }

  bool ends_at(const TapeNode& node) const { return node.sequence < options_.first; }

  // Marks the nodes again if walks that were suspended have left other marks.
  void renew_marks() {
    if (std::exchange(ctx_.marking_walk, id_) == id_) return;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      TapeNode& node = *nodes_[i];
      node.walk = id_, node.slot = uint32_t(i), node.needed = needed_[i];
    }
  }

  void add(TapeNode& node, uint32_t output, Value cotangent) {
    renew_marks();
    Cotangents& list = cotangents_[node.slot];
    while (list.size() <= output) list.emplace_back();
    Value& sum = list[output];
    if (!sum.defined()) {
      sum = std::move(cotangent);
      return;
    }
    Value in[2] = {std::move(sum), std::move(cotangent)};
    sum = apply(ctx_, op_named<"add">(), in, {})[0];
  }

  bool needs(const Value& input) { return input.node() && reached(input.node()) && needed_[input.node()->slot]; }

  bool leads_on(const TapeNode& node) {
    return !ends_at(node) &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Value& input) { return needs(input); });
  }

  // TapeNode::replaced of a node, during a call of its backward function. Another call may be suspended.
  struct Replaced {
    explicit Replaced(TapeNode& of) : node(of), before(std::exchange(of.replaced, {})) {}
    ~Replaced() { node.replaced = before; }
    Replaced(const Replaced&) = delete;
    TapeNode& node;
    const std::span<Value* const> before;
    SmallVector<Value*, 8> places;
  };
  // For the last node that runs. Nothing fails after it if each leaf whose gradient is not final yet gets one that the
  // node computes, with nothing to add.
  void find_replaced(const TapeNode& node, Replaced& replaced) {
    std::vector<char> met(nodes_.size(), false);
    for (const Value& input : node.inputs) {
      replaced.places.push_back(nullptr);
      if (!needs(input)) continue;
      const TapeNode& leaf = *input.node();
      if (!leaf.leaf || leaf.req != GradReq::kWrite || !cotangents_[leaf.slot].empty() ||
          !(input.type() == leaf.leaf_type) || std::exchange(met[leaf.slot], true))
        return;
      replaced.places.back() = &leaf.grad->value;
    }
    replaced.node.replaced = replaced.places;
  }

  void propagate(TapeNode& node, Cotangents& cotangents) {
    bool flows = false;
    for (const Value& v : cotangents) flows |= v.defined();
    if (!flows) return;
    while (cotangents.size() < node.outputs.size()) cotangents.emplace_back();
    // The backward function may have walked over this node itself, without retain_graph.
    if (node.released)
      throw Error(
          "backward: the graph was released by a backward function that ran backward over it; pass retain_graph = true "
          "there");
    const TapeNode::CustomBackward custom = node.custom;  // a copy, because the call may release the node
    Values grads = ctx_.detect_anomaly ? checked_gradients(node, cotangents, custom)
                   : custom            ? custom(ctx_, node, cotangents)
                                       : rule_gradients(node, cotangents);
    for (size_t i = 0; i < node.inputs.size() && i < grads.size(); ++i) {
      const Value& input = node.inputs[i];
      if (!needs(input) || !grads[i].defined()) continue;
      if (custom) check_shape(node, i, grads[i]);
      add(*input.node(), input.node_output(), fit(std::move(grads[i]), input.type()));
    }
  }

  // Throws if the gradient of a backward function has another shape than input i and none that the input broadcasts to.
  static void check_shape(const TapeNode& node, size_t i, const Value& grad) {
    const Dims& shape = node.inputs[i].shape();
    if (grad.is_number() || grad.shape() == shape) return;
    Dims joined;
    if (!broadcast(shape, grad.shape(), &joined) || !(joined == grad.shape()))
      bad_argument(node.custom_name.c_str(), fmt::format("gradient {}", i + 1).c_str(),
                   "a tensor of shape " + to_string(shape), to_string(grad.shape()));
  }

  // In anomaly mode: raises if an op of the rule makes a NaN, or if a gradient that goes on has one.
  Values checked_gradients(TapeNode& node, Cotangents& cotangents, const TapeNode::CustomBackward& custom) {
    Values grads;
    try {
      grads = custom ? custom(ctx_, node, cotangents) : rule_gradients(node, cotangents);
    } catch (const Anomaly& inner) {
      raise_in_gradient(node, cotangents, inner.what());
    }
    for (size_t i = 0; i < node.inputs.size() && i < grads.size(); ++i)
      if (needs(node.inputs[i]) && grads[i].defined() && has_nan(grads[i]))
        raise_in_gradient(node, cotangents, fmt::format("gradient {} = {}", i + 1, describe_range(view_of(grads[i]))));
    return grads;
  }

  [[noreturn]] static void raise_in_gradient(const TapeNode& node, const Cotangents& cotangents, std::string what) {
    std::string text;
    for (size_t i = 0; i < cotangents.size(); ++i)
      if (cotangents[i].is_array())
        text += fmt::format("gradient of result {} = {}; ", i + 1, describe_range(view_of(cotangents[i])));
    SmallVector<View, 4> in;
    for (const Value& v : node.inputs) in.push_back(view_of(v));
    if (node.op) text += describe_operands(*node.op, node.inputs, in) + "; ";
    throw Anomaly(fmt::format("{}: its gradient made a NaN{}: {}{}",
                              node.op ? std::string(node.op->name) : node.custom_name,
                              node.position.empty() ? "" : " (forward at " + node.position + ")", text, what));
  }

  // A value without data has no view.
  static View view_of(const Value& v) {
    if (!v.is_array() || !v.array().buffer) return {};
    return {&v.array().type, &v.array().strides, v.array().data()};
  }

  Values rule_gradients(TapeNode& node, Cotangents& cotangents) {
    const size_t n = node.inputs.size();
    SmallVector<Value, 2> outputs;
    for (size_t i = 0; i < node.outputs.size(); ++i) outputs.push_back(rule_output(ctx_, node, i));
    bool needed[64] = {};
    std::vector<char> more;
    std::span<const bool> needs_span(needed, std::min<size_t>(n, 64));
    if (n > 64) {
      more.resize(n);
      needs_span = {reinterpret_cast<const bool*>(more.data()), n};
    }
    for (size_t i = 0; i < n; ++i) (n > 64 ? reinterpret_cast<bool*>(more.data()) : needed)[i] = needs(node.inputs[i]);
    Values grads(n);
    SmallVector<Value, 3> wide;
    std::span<const Value> inputs = node.inputs;
    SmallVector<Value, 3> whole;
    if (node.again != 0) {
      for (size_t i = 0; i < n; ++i) whole.push_back(rule_input(ctx_, node, i));
      inputs = whole;
    }
    if (widen_rule(ctx_, *node.op, node.attrs, inputs, outputs, cotangents, wide)) inputs = wide;
    Vjp c(ctx_, *node.op, node.attrs, inputs, outputs, cotangents, needs_span, grads);
    if (node.op->vjp_all) {
      node.op->vjp_all(c);
      return grads;
    }
    for (size_t i = 0; i < n && i < node.op->vjp.size(); ++i)
      if (needs_span[i] && node.op->vjp[i]) grads[i] = node.op->vjp[i](c).value();
    return grads;
  }

  // Sums a gradient over broadcast dims and casts it to the input's dtype.
  Value fit(Value grad, const Type& type) {
    if (grad.is_number()) grad = ctx_.interpreter->filled(ctx_, type, grad.number());
    if (!(grad.shape() == type.shape)) {
      Dims joined;
      if (grad.rank() < type.shape.size() ||
          (broadcast(grad.shape(), type.shape, &joined) && !(joined == grad.shape())))
        grad = call_op(ctx_, op_named<"expand">(), std::move(grad), {{"shape", ints(type.shape)}});
      if (!(grad.shape() == type.shape))
        grad = call_op(ctx_, op_named<"sum_to">(), std::move(grad), {{"shape", ints(type.shape)}});
    }
    if (grad.dtype() != type.dtype) grad = call_op(ctx_, op_named<"to">(), std::move(grad), {{"dtype", type.dtype}});
    return grad;
  }

  static void release(TapeNode& node) {
    node.released = true;
    node.outputs.clear();
    node.custom = nullptr;
    node.held.clear();
    // The links stay, so that a second backward finds the released node. Large arrays are freed now.
    for (Value& v : node.inputs)
      if (is_large(v)) v = type_only(v);
  }

  struct Visit {
    TapeNode* node;
    uint64_t walk;  // the previous marks
    uint32_t slot;
    bool needed;
  };

  // A leaf, and how many nodes of the walk come before its gradient is final.
  struct Final {
    size_t after;
    uint32_t leaf;
  };

  Context& ctx_;
  const BackwardOptions& options_;
  const uint64_t id_;
  const uint64_t before_;  // the walk whose marks this one replaces
  std::vector<Visit> visits_;
  std::set<Place> places_;  // for nodes whose outputs lead to different inputs
  std::vector<Ref<TapeNode>> nodes_;
  std::vector<Cotangents> cotangents_;
  std::vector<char> needed_;
  std::vector<Final> finals_;  // in the order of the walk
  size_t last_ = 0;            // the last needed node that is no leaf
};

void check_cotangents(std::span<const Value> heads, std::span<const Value> cotangents) {
  for (size_t i = 0; i < heads.size(); ++i) {
    if (!heads[i].node())
      throw Error(
          "backward: this tensor was not computed under pg.record from a tensor with attach_grad, so nothing flows "
          "back from it; write local loss = pg.record(function() return net(x):sum() end) loss:backward()");
    if (i >= cotangents.size() || !cotangents[i].is_array()) continue;
    if (!(cotangents[i].shape() == heads[i].shape()))
      bad_argument("backward", "grad", "a gradient of shape " + to_string(heads[i].shape()),
                   to_string(cotangents[i].shape()));
    if (!(cotangents[i].device() == heads[i].device()))
      bad_argument("backward", "grad", "a gradient on " + name_of(heads[i].device()), to_string(cotangents[i].type()));
  }
}

Value cotangent_of(std::span<const Value> cotangents, size_t i) {
  return i < cotangents.size() ? cotangents[i] : Value();
}

Value new_gradient(Context& ctx, const TapeNode& leaf, std::span<Value> cotangents, bool create_graph) {
  Value grad = cotangents.empty() || !cotangents[0].defined() ? ctx.interpreter->filled(ctx, leaf.leaf_type, 0)
                                                              : std::move(cotangents[0]);
  if (leaf.req == GradReq::kAdd) {
    Value in[2] = {std::move(grad), leaf.grad->value};
    grad = apply(ctx, op_named<"add">(), in, {})[0];
  }
  return create_graph ? with_history(ctx, std::move(grad)) : grad.detached();
}

void suspect(Context& ctx, TapeNode& leaf, const Value& grad) {
  if (!leaf.alone()) return;
  leaf.join(ctx.suspects);
  ++ctx.new_suspects;
  ctx.suspect_bytes += size_t(grad.numel()) * size_t(size_of(grad.dtype()));
}

// The gradient of a leaf as the hook gives it.
Value finished(Context& ctx, TapeNode& leaf, Value gradient, const BackwardOptions& options) {
  if (!options.on_final) return gradient;
  gradient = options.on_final(ctx, leaf, std::move(gradient));
  check_gradient_type(leaf, gradient.type());
  return gradient;
}

void trace_backward(Context& ctx, Tracer& tracer, Walk& walk, std::span<const Value> heads,
                    std::span<const Value> cotangents, const BackwardOptions& options) {
  const std::vector<TapeNode*> leaves = walk.leaves();
  Values wanted;
  for (TapeNode* leaf : leaves) wanted.push_back(tracer.value_of(leaf));
  tracer.check_inside(heads, wanted, options.first);
  Values grads = tracer.gradient(ctx, heads, cotangents, wanted, options.create_graph, options.first);
  walk.release_needed();
  ScopedFlag recording(ctx.recording, options.create_graph);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]->req == GradReq::kAdd) {
      Value in[2] = {std::move(grads[i]), tracer.read_gradient(*leaves[i])};
      grads[i] = apply(ctx, op_named<"add">(), in, {})[0];
    }
    grads[i] = finished(ctx, *leaves[i], std::move(grads[i]), options);
  }
  for (size_t i = 0; i < leaves.size(); ++i) tracer.write_gradient(*leaves[i], std::move(grads[i]));
}

Values trace_gradients(Context& ctx, Tracer& tracer, Walk& walk, std::span<const Value> heads,
                       std::span<const Value> cotangents, std::span<const Value> wanted,
                       const BackwardOptions& options) {
  tracer.check_inside(heads, wanted, options.first);
  Values linked, out(wanted.size());
  std::vector<size_t> places;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].node()) continue;
    places.push_back(i);
    linked.push_back(wanted[i]);  // also what no gradient reaches, so that the graph tells that it was asked for
  }
  if (places.empty()) return out;
  Values grads = tracer.gradient(ctx, heads, cotangents, linked, options.create_graph, options.first);
  walk.release_needed();
  for (size_t i = 0; i < places.size(); ++i)
    if (walk.reached(wanted[places[i]].node())) out[places[i]] = std::move(grads[i]);
  return out;
}

}  // namespace

void backward(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
              const BackwardOptions& options) {
  check_cotangents(heads, cotangents);
  Walk walk(ctx, options);
  walk.collect(heads);
  for (const Ref<TapeNode>& node : walk.nodes())
    if (node->leaf && node->req != GradReq::kNull) walk.need(node.get());
  walk.spread_needs();
  if (Tracer* tracer = ctx.interpreter->tracer()) return trace_backward(ctx, *tracer, walk, heads, cotangents, options);
  for (size_t i = 0; i < heads.size(); ++i) walk.seed(heads[i], cotangent_of(cotangents, i));
  // All leaves are written together, after the last step that can throw.
  std::vector<std::pair<TapeNode*, Value>> writes;
  const auto keep = [&](TapeNode& node, std::span<Value> grads) {
    if (node.leaf && node.req != GradReq::kNull)
      writes.emplace_back(&node, finished(ctx, node, new_gradient(ctx, node, grads, options.create_graph), options));
  };
  writes.reserve(walk.leaves().size());
  const bool stores = !options.create_graph && !options.on_final && !ctx.suspender;
  observed(ctx, Work::Kind::kBackward, "backward", [&] { walk.run(keep, stores); });
  for (auto& [leaf, grad] : writes) {
    if (grad.has_node()) suspect(ctx, *leaf, grad);
    leaf->grad->value = std::move(grad);
    leaf->fresh = true;
  }
}

Values gradients(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                 std::span<const Value> wanted, const BackwardOptions& options) {
  check_cotangents(heads, cotangents);
  Walk walk(ctx, options);
  walk.collect(heads);
  for (const Value& v : wanted)
    if (v.node() && walk.reached(v.node())) walk.need(v.node());
  walk.spread_needs();
  if (Tracer* tracer = ctx.interpreter->tracer())
    return trace_gradients(ctx, *tracer, walk, heads, cotangents, wanted, options);
  for (size_t i = 0; i < heads.size(); ++i) walk.seed(heads[i], cotangent_of(cotangents, i));
  Values out(wanted.size());
  const auto keep = [&](TapeNode& node, std::span<Value> grads) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].node() != &node || wanted[i].node_output() >= grads.size()) continue;
      const Value& grad = grads[wanted[i].node_output()];
      if (grad.defined()) out[i] = options.create_graph ? with_history(ctx, grad) : grad.detached();
    }
  };
  observed(ctx, Work::Kind::kBackward, "backward", [&] { walk.run(keep); });
  for (size_t i = 0; options.create_graph && i < wanted.size(); ++i)
    if (!out[i].defined() && wanted[i].node() && walk.reached(wanted[i].node()))
      out[i] = with_history(ctx, ctx.interpreter->filled(ctx, wanted[i].type(), 0));
  return out;
}

}  // namespace pg
