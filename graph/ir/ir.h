// Graph: a program as a plain value. It is a flat list of typed nodes in topological order. A pass takes one graph and
// returns another. Everything that runs natively is a graph: a traced forward, its joint forward and backward, the body
// of a loop.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/function_ref.h"
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
  kInput,     // no operands; its position in Graph::inputs says which input it is
  kConstant,  // the value `constant`
  kOp,        // an op of the registry, including branches and loops (control.h)
  kFused,     // a chain of pointwise ops, reductions and joins at its end, run as one kernel: `body`
  // The kinds below exist only in traces. Specialization removes them:
  kLeaf,      // its operand as a new leaf of the tape (attach_grad); with create_graph and a history, a view of it
  kDetach,    // its operand without history
  kWrite,     // its first operand, as the new contents of a tensor that held the second before the op `name` (see
              // Tracer::write)
  kGradient,  // operands: heads, cotangents (or none), wanted; outputs: one gradient per wanted operand
  kCustom,    // an autograd.Function; operands: its inputs, outputs, saved; outputs: its outputs; `body`: its backward
};

// Where a node takes a flag from: the run (kAuto), or the scope around it in the script.
enum class Mode : uint8_t { kAuto, kOff, kOn };

struct Node {
  NodeKind kind = NodeKind::kOp;
  Mode training = Mode::kAuto;
  Mode recording = Mode::kAuto;
  int32_t line = -1;          // index into Graph::lines, or -1
  const OpDef* op = nullptr;  // of kOp; of a kInput: the op that has made it, if known
  Attrs attrs;                // of kOp. A RandomKey in it means: seed, the index of a generator of the
                              // program; tick, how many ticks after the generator's state at the start of the run
  SmallVector<Operand, 3> inputs;
  SmallVector<Type, 1> types;         // of the outputs
  Value constant;                     // of kConstant: contiguous, on the CPU or on the device where the program runs
  std::shared_ptr<const Graph> body;  // of kFused and kCustom
  // Of kGradient: the number of operands that are heads (as many cotangents follow them), and options of the walk.
  int32_t heads = 0;
  bool create_graph = false;
  int32_t first = 0;   // the walk treats earlier nodes as leaves
  bool quiet = false;  // what it runs has no effects: see without_effects
  // Of a kInput or kLeaf that gradients flow to: the gradient request of the leaf.
  GradReq req = GradReq::kNull;
  bool lasts = false;    // of kInput: most runs get the same array, as of a parameter
  std::string name;      // of kInput: "data", "body.1.weight"; of kCustom: the name of the Function
  Counted<512> counted;  // with the usual room in its vectors

  // Whether the node applies one of these ops.
  template <OpName... names>
  bool is() const {
    return kind == NodeKind::kOp && ((op == &op_named<names>()) || ...);
  }
  bool has(Traits trait) const { return kind == NodeKind::kOp && op->has(trait); }
};

Node constant_node(const Type& type, Value value, int32_t line = -1);

// The graphs that running the node may run: `body`, and the graphs among its attributes.
SmallVector<const Graph*, 2> bodies_of(const Node& node);

// Replaces each of them by f(body). If f returns null, the body stays.
using BodyChange = FunctionRef<std::shared_ptr<const Graph>(const Graph& body)>;
void change_bodies(Node& node, BodyChange f);

// A property of a type that the script read while it was traced. The trace is valid only for types with the same
// property. A node always has as many outputs as in its trace (see check_outputs). kOutputs says that the script has
// seen that number, so the node is kept even if nothing reads its outputs.
struct TypeGuard {
  enum Kind : uint8_t { kDim, kRank, kDType, kDevice, kRequiresGrad, kOutputs };
  Operand of;
  Kind kind = kDim;
  int32_t dim = 0;    // of kDim, 0-based
  int64_t value = 0;  // a size, a rank, a DType, a device as kind << 8 | index, 0 or 1, a number of outputs
  int32_t line = -1;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<int32_t> inputs;     // nodes of kind kInput, in the order of the call's inputs
  std::vector<Operand> outputs;    // never immediates
  std::vector<std::string> lines;  // "file:line" of the script or "", and ": name" where errors show another name
  std::vector<TypeGuard> guards;   // only in traces
  std::vector<uint64_t> ticks;     // by generator: the ticks that a run takes

  const Node& node(const Operand& operand) const { return nodes[size_t(operand.node)]; }
  const Type& type(const Operand& operand) const { return node(operand).types[size_t(operand.output)]; }
};

// Of a line of Graph::lines: the name or "", the position, and the text of an error at that position.
std::string_view name_in(std::string_view line);
std::string position_of(const std::string& line);
std::string error_at(const std::string& line, std::string_view text);

// Checks the structure: order, bounds, kinds and the kinds of attributes. Unless `types` is false, also checks that the
// nodes' types are those that infer returns. Throws Error "graph: node 12 (add): …".
void verify(const Graph& graph, bool types = true);

// The text form, one line per node: `%3 = add(%1, 2) : float32 4x3  -- net.lua:12`. Golden tests pin it. Nothing parses
// it.
std::string to_string(const Graph& graph);

// Returns the graph without the ops that run only for their effect, also in its bodies and in the gradients that it
// takes; those of nodes that depend on an input from position `kept` on stay.
Graph without_effects(const Graph& graph, size_t kept = SIZE_MAX);
// The same for the nodes from position `from` on.
void remove_effects(Graph& graph, size_t from, std::span<const char> stays = {});

// Returns the nodes that depend on an input from position `first` on.
std::vector<char> behind_inputs(const Graph& graph, size_t first);

// Whether running the node does more than compute its outputs: its op has an effect, or a node of its bodies does.
bool has_effect(const Node& node);
// Returns the nodes that the roots need, and those with an effect.
std::vector<char> needed_nodes(const Graph& graph, std::span<const Operand> roots);

// The graph in the language of Graphviz.
std::string to_dot(const Graph& graph);

// For each node, how many times its outputs are read by other nodes and by the graph's outputs.
std::vector<int32_t> count_uses(const Graph& graph);

// Returns the graph without the nodes that no output, guard or effect needs. Inputs are kept.
Graph without_dead_nodes(const Graph& graph);

// A node that computes the outputs of an earlier one, and more, from the same operands.
struct Extension {
  int32_t node, by;
};
// Returns the graph with each `by` in the place of its `node`. A `by` may be extended in turn by a later element.
Graph with_extensions(const Graph& graph, std::span<const Extension> extensions);

}  // namespace pg
