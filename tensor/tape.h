// The gradient tape: an acyclic graph of op applications. backward walks it once, from results to leaves.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tensor/context.h"

namespace pg {

enum class GradReq : uint8_t { kNull, kWrite, kAdd };

// A value that several boxes share: the gradient of a leaf, and the boxes that `x.grad` returns.
struct Cell : RefCounted<Cell> {
  Value value;
  static void destroy(Cell* cell) { delete cell; }
};

// A leaf (attach_grad) or one recorded application of an op.
class TapeNode : public TapeLink, public RingLink {
 public:
  // The backward function of an application without an OpDef rule (autograd.Function, checkpoint). It gets the
  // cotangents of the outputs (undefined when there are none) and returns one gradient per input (or undefined).
  using CustomBackward = std::function<Values(Context&, TapeNode& node, std::span<const Value> cotangents)>;

  uint64_t sequence = 0;
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVector<Value, 3> inputs;        // with links; arrays that vjp does not read keep only their type
  SmallVector<Ref<Array>, 1> outputs;  // without links, so that the tape stays acyclic; vjp gets them linked again
  CustomBackward custom;
  // For each output, the inputs that backward continues to. Null: all of them.
  std::shared_ptr<const std::vector<std::vector<int32_t>>> behind;
  uint32_t frozen_from = ~0u;  // outputs from this number on depend only on leaves with the request kNull
  std::vector<Value> held;  // other values that `custom` reads, stored here so that the links in them can be followed
  bool hosted = false;      // backward of this node or of one that it leads to calls a function of the host
  std::string custom_name;
  std::string position;  // script line, in anomaly mode
  bool released = false;

  // Rematerialization: see tensor/recompute.h.
  uint64_t again = 0;  // by input: its array was dropped; the node behind it has it or computes it
  uint8_t chain = 0;   // output 1 was dropped; the length of the chain of ops that computes it, else 0

  // For leaves only.
  bool leaf = false;
  GradReq req = GradReq::kWrite;
  Ref<Cell> grad;      // zeros after attach_grad
  bool fresh = false;  // backward has written to it since the flag was last cleared
  Type leaf_type;

  // State of the walk in progress.
  uint64_t walk = 0;
  uint32_t slot = 0;
  bool needed = false;  // the gradient of this node or of one that it leads to is wanted
  bool ends = false;    // the walk releases the node after its backward function
  // By input, while `custom` runs: the gradient that its result replaces. Empty unless nothing that comes after
  // `custom` can fail. It may move the old values out, and return new ones in their memory.
  std::span<Value* const> replaced;

  TapeNode* next_doomed = nullptr;  // see TapeLink::destroy
  Counted<576> counted;
};

inline TapeNode* Value::node() const { return static_cast<TapeNode*>(node_.get()); }
inline void Value::link(TapeNode* node, uint32_t output) {
  node_ = Ref<TapeLink>(node);
  node_output_ = output;
}

// Whether the node is a leaf with a gradient. The nodes at which a walk inside a trace ends have none.
inline bool is_leaf(const TapeNode* node) { return node && node->leaf && node->grad; }

// Throw when an op may not write to a tensor in place: the tensor is a leaf and the tape records, or the result has
// another shape or dtype.
void check_leaf_write(const char* op, bool leaf, bool recording);
void check_write(const char* op, const Type& old, const Type& now);

// Throw when a tensor of this type cannot be a leaf, or when a `.grad` of this type does not match the leaf.
void check_leaf_type(const Type& type);
void check_gradient_type(const TapeNode& leaf, const Type& type);

// Whether no leaf that the value depends on requests a gradient.
inline bool is_frozen(const Value& v) {
  return v.node() && (v.node()->leaf ? v.node()->req == GradReq::kNull : v.node_output() >= v.node()->frozen_from);
}

// Whether gradients flow to the value: it is a leaf that requests one, or was computed from such leaves.
inline bool asks_gradient(const Value& v) { return v.node() && !is_frozen(v); }

// Whether it is a recorded result, and no leaf.
inline bool has_history(const Value& v) { return v.node() && !v.node()->leaf; }

// Returns a leaf with a zero gradient of this type. Floating dtypes only.
Ref<TapeNode> make_leaf(const Type& type, GradReq req);

// Whether the tape holds the value, so that its gradient can be asked for, also if its leaves request none.
inline bool requires_grad(const Value& v) { return v.has_node(); }

// Links `outputs` to a new tape node if the tape records and an input has a node.
void record(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::span<Value> outputs);

// Links `outputs` to a node with its own backward function. `held`: see TapeNode. Returns the node, or null when none
// was made.
TapeNode* record_custom(Context& ctx, const std::string& name, std::span<const Value> inputs, std::span<Value> outputs,
                        TapeNode::CustomBackward backward, std::vector<Value> held = {});

// Whether the elements take so much memory that a rule that reads only the type does not keep them.
// type_only returns the value without such elements.
bool is_large(const Value& v);
Value type_only(const Value& v);

// A gradient of create_graph. One that depends on nothing gets a place on the tape, too, so that walks may start from
// it: its derivatives are zeros, as in a graph.
Value with_history(Context& ctx, Value grad);

// Called with a leaf and the value that its `.grad` takes when the walk has ended: every contribution is in it, and for
// GradReq::kAdd what `.grad` held. Returns the value to store instead, of the same type.
using LeafHook = std::function<Value(Context&, TapeNode& leaf, Value gradient)>;

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  uint64_t first = 0;  // the walk stops at nodes with a lower sequence, as if they were leaves
  // Only for backward. Runs for each leaf as soon as no node that is still to come contributes to it. Leaves among the
  // heads that no node reads come first. Leaves that the same node makes final come in the order of its inputs. If it
  // throws, no `.grad` changes. While tracing it runs in the same order, on symbols.
  LeafHook on_final = nullptr;
};

// Accumulates into `.grad` of the leaves that the heads depend on. `cotangents` are those of the heads (ones where
// undefined). Leaves that no cotangent reaches get exact zeros. All leaves change together, after the last step that
// can fail.
void backward(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
              const BackwardOptions& options);

// Returns the gradients of the heads with respect to `wanted` (leaves or recorded values) and does not change `.grad`.
// They are undefined for values that the heads do not depend on.
Values gradients(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                 std::span<const Value> wanted, const BackwardOptions& options);

// Calls f with each node that this node keeps alive, once per link.
template <class F>
void each_link(const TapeNode& node, const F& f) {
  for (const Value& v : node.inputs)
    if (v.node()) f(v.node());
  for (const Value& v : node.held)
    if (v.node()) f(v.node());
  if (node.leaf && node.grad && node.grad->value.node()) f(node.grad->value.node());
}

// The part of the tape that is reachable from some nodes, and which of these nodes are also kept alive from outside: by
// values that are not part of it, or by gradients whose cell has other owners.
class TapeReach {
 public:
  void add(TapeNode* node);                               // adds the node and everything that it keeps alive
  void count(const TapeNode* node) { ++at(node).links; }  // counts one more known link to the node
  void find_outside();                                    // call it after the last count
  bool outside(const TapeNode* node) const { return found_[index_.at(node)].outside; }
  size_t size() const { return found_.size(); }
  size_t index_of(const TapeNode* node) const { return index_.at(node); }
  const TapeNode& node(size_t i) const { return *found_[i].node; }

 private:
  struct Found {
    const TapeNode* node;
    uint32_t links = 0;
    bool outside = false;
  };
  Found& at(const TapeNode* node) { return found_[index_.at(node)]; }
  std::vector<Found> found_;
  std::unordered_map<const TapeNode*, size_t> index_;
};

// The bytes of the arrays that the history of these values keeps for backward, without the leaves. An array counts
// once.
int64_t kept_bytes(std::span<const Value> heads);

// Frees reference cycles of the tape. Backward with create_graph can create one: a leaf keeps its gradient, whose
// history leads back to the leaf. This function drops the histories of gradients that are reachable only from their own
// cycle. Its time is proportional to the size of those histories.
void break_cycles(Context& ctx);

// Drops the histories of all gradients, when the context closes.
void drop_histories(Context& ctx);

}  // namespace pg
