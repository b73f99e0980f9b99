// The gradient tape: an acyclic graph of applications, walked backwards once.
#pragma once
#include <functional>
#include <optional>

#include "tensor/context.h"

namespace pg {

enum class GradReq : uint8_t { kNull, kWrite, kAdd };

// A value that several boxes share: the gradient of a leaf and the boxes that `x.grad` answers.
struct Cell : RefCounted<Cell> {
  Value value;
  static void destroy(Cell* cell) { delete cell; }
};

// A leaf (attach_grad) or one recorded application.
class TapeNode : public TapeLink {
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
  std::string custom_name;
  std::string position;                // script line, in anomaly mode
  bool released = false;

  // Leaves only.
  bool leaf = false;
  GradReq req = GradReq::kWrite;
  Ref<Cell> grad;                      // zeros from attach_grad on
  bool fresh = false;                  // backward wrote since the flag was last cleared
  Type leaf_type;

  // Scratch of the walk that is under way.
  uint64_t walk = 0;
  uint32_t slot = 0;

  TapeNode* next_doomed = nullptr;  // see TapeLink::destroy
};

inline TapeNode* Value::node() const { return static_cast<TapeNode*>(node_.get()); }
inline void Value::link(TapeNode* node, uint32_t output) {
  node_ = Ref<TapeLink>(node);
  node_output_ = output;
}

// A leaf with a zero gradient of that type (floating dtypes only).
Ref<TapeNode> make_leaf(const Type& type, GradReq req);

// True when a cotangent can flow into the value.
inline bool requires_grad(const Value& v) { return v.has_node(); }

// Links `outputs` to a new tape entry when recording and an input needs it.
void record(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::span<Value> outputs);

// Links `outputs` to an entry with its own backward.
void record_custom(Context& ctx, const std::string& name, std::span<const Value> inputs, std::span<Value> outputs,
                   TapeNode::CustomBackward backward);

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

}  // namespace pg
