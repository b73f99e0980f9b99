// The gradient tape: an acyclic graph of applications, walked backwards once.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tensor/context.h"

namespace pg {

enum class GradReq : uint8_t { kNull, kWrite, kAdd };

// A value that several boxes share: the gradient of a leaf and the boxes that `x.grad` answers.
struct Cell : RefCounted<Cell> {
  Value value;
  static void destroy(Cell* cell) { delete cell; }
};

// A leaf (attach_grad) or one recorded application.
class TapeNode : public TapeLink, public RingLink {
 public:
  // Backward of an application that has no OpDef rule (autograd.Function, checkpoint): gets the output
  // cotangents (undefined where nothing flowed), answers one gradient (or undefined) an input.
  using CustomBackward = std::function<Values(Context&, TapeNode& node, std::span<const Value> cotangents)>;

  uint64_t sequence = 0;
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVector<Value, 3> inputs;        // with links; arrays that vjp does not use keep only their type
  SmallVector<Ref<Array>, 1> outputs;  // payloads only, re-linked for vjp: the tape stays acyclic
  CustomBackward custom;
  // By output: which inputs backward from it goes on to; null: all of them.
  std::shared_ptr<const std::vector<std::vector<int32_t>>> behind;
  bool frozen = false;      // an application all of whose leaves have the request kNull
  std::vector<Value> held;  // what `custom` reads besides; here, so that the links can be followed
  bool hosted = false;      // a function of the host runs backward here or further back
  std::string custom_name;
  std::string position;  // script line, in anomaly mode
  bool released = false;

  // Leaves only.
  bool leaf = false;
  GradReq req = GradReq::kWrite;
  Ref<Cell> grad;      // zeros from attach_grad on
  bool fresh = false;  // backward wrote since the flag was last cleared
  Type leaf_type;

  // Scratch of the walk that is under way.
  uint64_t walk = 0;
  uint32_t slot = 0;
  bool needed = false;  // a gradient that is asked for is the node's own or lies behind it

  TapeNode* next_doomed = nullptr;  // see TapeLink::destroy
};

inline TapeNode* Value::node() const { return static_cast<TapeNode*>(node_.get()); }
inline void Value::link(TapeNode* node, uint32_t output) {
  node_ = Ref<TapeLink>(node);
  node_output_ = output;
}

// A leaf with a gradient, not merely where a walk inside of a trace ends.
inline bool is_leaf(const TapeNode* node) { return node && node->leaf && node->grad; }

// Refuses what an op may not do to a tensor in place: change a leaf while recording; store a result of another shape or
// dtype than the tensor has.
void check_leaf_write(const char* op, bool leaf, bool recording);
void check_write(const char* op, const Type& old, const Type& now);

// Refuse a tensor that cannot be a leaf, and a `.grad` of another type than the leaf's.
void check_leaf_type(const Type& type);
void check_gradient_type(const TapeNode& leaf, const Type& type);

// Whether nothing behind the value asks for a gradient.
inline bool is_frozen(const Value& v) {
  return v.node() && (v.node()->leaf ? v.node()->req == GradReq::kNull : v.node()->frozen);
}

// A leaf with a zero gradient of that type (floating dtypes only).
Ref<TapeNode> make_leaf(const Type& type, GradReq req);

// True when a cotangent can flow into the value.
inline bool requires_grad(const Value& v) { return v.has_node(); }

// Links `outputs` to a new tape entry when recording and an input needs it.
void record(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::span<Value> outputs);

// Links `outputs` to an entry with its own backward. `held`: see TapeNode. Returns the entry, or null where none was
// made.
TapeNode* record_custom(Context& ctx, const std::string& name, std::span<const Value> inputs, std::span<Value> outputs,
                        TapeNode::CustomBackward backward, std::vector<Value> held = {});

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  uint64_t first = 0;  // entries with a lower sequence are not gone through, as if they were leaves
};

// Accumulates into `.grad` of the leaves below `heads`: cotangents (ones where undefined) flow from the
// heads. Leaves that are reached without flow get exact zeros.
void backward(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents, BackwardOptions options);

// Gradients of the heads with respect to `wanted` (leaves or recorded values), leaving `.grad` alone.
// Undefined where a wanted value is not reached.
Values gradients(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                 std::span<const Value> wanted, BackwardOptions options);

// Calls f with each node that the node keeps alive, once a link.
template <class F>
void each_link(const TapeNode& node, const F& f) {
  for (const Value& v : node.inputs)
    if (v.node()) f(v.node());
  for (const Value& v : node.held)
    if (v.node()) f(v.node());
  if (node.leaf && node.grad && node.grad->value.node()) f(node.grad->value.node());
}

// The part of the tape that can be reached from some nodes, and which of it something else keeps alive: values that are
// not part of it, and gradients whose cell others hold.
class TapeReach {
 public:
  void add(TapeNode* node);                               // and what it keeps alive
  void count(const TapeNode* node) { ++at(node).links; }  // one more link to the node is known
  void find_outside();                                    // after the last count
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

// Backward with create_graph can close a ring: a leaf keeps its gradient, whose history goes back to the leaf. Counts
// never free such, so this drops the histories of gradients that nothing outside of their ring reaches. Takes time in
// proportion to the tapes behind the gradients with a history.
void break_cycles(Context& ctx);

// Drops the histories of all gradients: the context is closing.
void drop_histories(Context& ctx);

}  // namespace pg
