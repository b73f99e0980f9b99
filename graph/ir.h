// Graph: a program as a plain value. A flat list of typed nodes in topological order; a pass takes one and returns
// another. Everything that runs natively is one: a traced forward, its joint forward and backward, the body of a loop.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tensor/op.h"
#include "tensor/tape.h"

namespace pg {

struct Graph;

// One flattened input of a node: an output of an earlier node, an immediate number (a weak scalar), or absent.
struct Operand {
  static constexpr int32_t kNone = -1, kNumber = -2;
  int32_t node = kNone;
  int32_t output = 0;
  double number = 0;

  static Operand of(size_t node, size_t output = 0) { return {int32_t(node), int32_t(output), 0}; }
  static Operand immediate(double number) { return {kNumber, 0, number}; }
  bool is_node() const { return node >= 0; }
  bool is_number() const { return node == kNumber; }
  bool is_none() const { return node == kNone; }
  bool operator==(const Operand& other) const;  // NaN equals NaN
};

enum class NodeKind : uint8_t {
  kInput,     // no operands; which one it is: its place among the graph's inputs
  kConstant,  // `constant`
  kOp,        // an op of the registry
  kFused,     // bodies[0], a chain of pointwise ops and at most one reduction at its end, as one kernel
  // Only in traces, gone after specialization:
  kLeaf,      // its operand, as a fresh leaf of the gradient tape (attach_grad)
  kDetach,    // its operand without history
  kGradient,  // operands: heads, cotangents (or none), wanted; outputs: one gradient for each wanted
  kCustom,    // operands: inputs, outputs, saved of an autograd.Function; outputs are its outputs; bodies[0] is its backward
};

// Where a node takes a flag from: the run, or the script's own scope around it.
enum class Mode : uint8_t { kAuto, kOff, kOn };

struct Node {
  NodeKind kind = NodeKind::kOp;
  Mode training = Mode::kAuto;
  Mode recording = Mode::kAuto;
  int32_t line = -1;                   // into Graph::lines
  const OpDef* op = nullptr;           // of kOp
  Attrs attrs;                         // of kOp. A RandomKey in it means: seed, the index of a generator of the
                                       // program; tick, how many ticks after the generator's state at the start of the run
  SmallVector<Operand, 3> inputs;
  SmallVector<Type, 1> types;          // of the outputs
  Value constant;                      // of kConstant; on the CPU or where the program runs, contiguous
  std::vector<std::shared_ptr<const Graph>> bodies;
  // Of kGradient: how many of the operands are heads (as many cotangents follow them), and how the walk goes.
  int32_t heads = 0;
  bool create_graph = false;
  int32_t first = 0;                   // nodes before it end the walk, as if they were leaves
  // Of a kInput or kLeaf that gradients flow to: the leaf's request.
  GradReq req = GradReq::kNull;
  std::string name;                    // of kInput: "data", "body.1.weight"; of kCustom: the Function's name

  bool is(const char* op_name) const { return kind == NodeKind::kOp && std::string_view(op->name) == op_name; }
};

// What the script read of a type while it was traced. The trace holds only for types that answer the same.
struct TypeGuard {
  enum Kind : uint8_t { kDim, kRank, kDType, kDevice, kRequiresGrad };
  Operand of;
  Kind kind = kDim;
  int32_t dim = 0;     // of kDim, 0-based
  int64_t value = 0;   // a size, a rank, a DType, kind << 8 | index of a device, 0 or 1
  int32_t line = -1;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<int32_t> inputs;         // nodes of kind kInput, in the order of the call
  std::vector<Operand> outputs;        // none of them an immediate
  std::vector<std::string> lines;      // "file:line" of the script
  std::vector<TypeGuard> guards;       // of traces
  std::vector<uint64_t> ticks;         // how many ticks a run takes of each generator

  const Node& node(const Operand& operand) const { return nodes[size_t(operand.node)]; }
  const Type& type(const Operand& operand) const { return node(operand).types[size_t(operand.output)]; }
};

// Checks the structure: order, bounds, kinds, attributes of the right kinds, and that infer gives the types that stand
// there (`types` = false leaves that out). Throws Error "graph: node 12 (add): …".
void verify(const Graph& graph, bool types = true);

// The text form, one line a node: `%3 = add(%1, 2) : float32 4x3  -- net.lua:12`. Parsed by nobody; golden tests pin it.
std::string to_string(const Graph& graph);

// Graphviz.
std::string to_dot(const Graph& graph);

// For each node, how often its outputs are read by nodes and by the graph's outputs.
std::vector<int32_t> count_uses(const Graph& graph);

// A graph without the nodes that no output and no effect needs. Inputs stay.
Graph without_dead_nodes(const Graph& graph);

}  // namespace pg
