// Graph: a program as a plain value. A flat list of typed nodes in topological order; a pass takes one and returns
// another. Everything that runs natively is one: a traced forward, its joint forward and backward, the body of a loop.
#pragma once
#include <memory>
#include <string>
#include <string_view>
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
  kCond,      // operands: a predicate of one element, captures; bodies: then, else
  kLoop,      // bodies[0], once a step; see LoopForm
  // Only in traces, gone after specialization:
  kLeaf,  // its operand, as a fresh leaf of the gradient tape (attach_grad); with create_graph as a view where it has a
          // history
  kDetach,    // its operand without history
  kWrite,     // its first operand, as what a tensor that held the second holds after the op `name` (see Tracer::write)
  kGradient,  // operands: heads, cotangents (or none), wanted; outputs: one gradient for each wanted
  kCustom,    // operands: inputs, outputs, saved of an autograd.Function; outputs are its outputs; bodies[0] is its
              // backward
};

// Where a node takes a flag from: the run, or the script's own scope around it.
enum class Mode : uint8_t { kAuto, kOff, kOn };

// kCond: both bodies take the captures and give the same types. The predicate is true where it is not 0.
//
// kLoop: how its operands and those of its bodies are laid out.
//   operands  [count] [flag] slices… carries… captures…
//   body      (index, slices…, carries…, captures…) → [flag] carries… stacked…
//   outputs   steps carries… stacked…
// A step gets its number (0-dim int64, from 1), row `index` of each slice, the carries of the step before (at first the
// operands) and the captures; a stacked output has what the steps gave as its rows, zeros where no step was. Steps: the
// rows of the slices, or the number in `count`, at most `limit`; a conditional loop ends before the first step for
// which the flag (0-dim bool) is false. `steps` is how many there were, 0-dim int64. Without a limit the stacked
// outputs of a conditional loop have as many rows as it takes steps: their type says 0 rows, and only slices of loops
// can read them. In a trace a conditional loop has no operand `flag`: bodies[1] (index, carries…, captures…) → flag
// tells.
struct LoopForm {
  static constexpr int64_t kNoLimit = -1;
  int32_t slices = 0, carries = 0;
  bool counted = false;  // has the operand `count`: 0-dim int64
  bool conditional = false;
  bool reverse = false;      // from the last row to the first
  bool recompute = false;    // its gradient keeps nothing of a step but the carries
  int64_t limit = kNoLimit;  // rows of the stacked outputs; where there are slices it is their number of rows
  int64_t checkpoint = 0;    // only in traces: > 0: the gradient keeps the carries of every so many steps

  int32_t first_slice(bool trace) const { return int32_t(counted) + int32_t(conditional && !trace); }
  bool operator==(const LoopForm&) const = default;
};

// A generator in the body of a kCond or kLoop: its ticks are those of a stream of its own for each step, which the tick
// of the node names: see body_stream in graph/exec/exec.h.
struct BodyStream {
  uint64_t generator = 0, tick = 0;
  // Loops in parts draw what they draw as a whole. Only in specialized programs:
  uint64_t chunk = 0;   // > 0: a step is a chunk of so many steps, which the loop in its body takes
  bool inner = false;   // of that loop
  uint64_t before = 0;  // steps that another loop took before the first
  bool operator==(const BodyStream&) const = default;
};

struct Node {
  NodeKind kind = NodeKind::kOp;
  Mode training = Mode::kAuto;
  Mode recording = Mode::kAuto;
  int32_t line = -1;          // into Graph::lines
  const OpDef* op = nullptr;  // of kOp
  Attrs attrs;                // of kOp. A RandomKey in it means: seed, the index of a generator of the
                              // program; tick, how many ticks after the generator's state at the start of the run
  SmallVector<Operand, 3> inputs;
  SmallVector<Type, 1> types;  // of the outputs
  Value constant;              // of kConstant; on the CPU or where the program runs, contiguous
  std::vector<std::shared_ptr<const Graph>> bodies;
  // Of kGradient: how many of the operands are heads (as many cotangents follow them), and how the walk goes.
  int32_t heads = 0;
  bool create_graph = false;
  int32_t first = 0;  // nodes before it end the walk, as if they were leaves
  // Of a kInput or kLeaf that gradients flow to: the leaf's request.
  GradReq req = GradReq::kNull;
  LoopForm loop;                    // of kLoop
  std::vector<BodyStream> streams;  // of kCond and kLoop: one a generator that the bodies use
  std::string name;                 // of kInput: "data", "body.1.weight"; of kCustom: the Function's name;
                                    // of kCond and kLoop: "foreach"

  // Whether it applies one of these ops.
  template <OpName... names>
  bool is() const {
    return kind == NodeKind::kOp && ((op == &op_named<names>()) || ...);
  }
  bool has(Traits trait) const { return kind == NodeKind::kOp && op->has(trait); }
};

// What the script read of a type while it was traced. The trace holds only for types that give the same. A node always
// gives as many outputs as its trace has (see check_outputs): kOutputs says that the script has seen how many, so that
// the node stays even where nothing reads them.
struct TypeGuard {
  enum Kind : uint8_t { kDim, kRank, kDType, kDevice, kRequiresGrad, kOutputs };
  Operand of;
  Kind kind = kDim;
  int32_t dim = 0;    // of kDim, 0-based
  int64_t value = 0;  // a size, a rank, a DType, kind << 8 | index of a device, 0 or 1, a number of outputs
  int32_t line = -1;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<int32_t> inputs;     // nodes of kind kInput, in the order of the call
  std::vector<Operand> outputs;    // none of them an immediate
  std::vector<std::string> lines;  // "file:line" of the script; and ": name" where it called the op by another one
  std::vector<TypeGuard> guards;   // of traces
  std::vector<uint64_t> ticks;     // how many ticks a run takes of each generator

  const Node& node(const Operand& operand) const { return nodes[size_t(operand.node)]; }
  const Type& type(const Operand& operand) const { return node(operand).types[size_t(operand.output)]; }
};

// Of one of Graph::lines: the name, or ""; where it is; the text of an error there.
std::string_view name_in(std::string_view line);
std::string position_of(const std::string& line);
std::string error_at(const std::string& line, std::string_view text);

// Checks the structure: order, bounds, kinds, attributes of the right kinds, and that infer gives the types that stand
// there (`types` = false leaves that out). Throws Error "graph: node 12 (add): …".
void verify(const Graph& graph, bool types = true);

// The text form, one line a node: `%3 = add(%1, 2) : float32 4x3  -- net.lua:12`. Parsed by nobody; golden tests pin
// it.
std::string to_string(const Graph& graph);

// The type of one row, which a loop cuts off or stacks, and that of so many rows.
Type row_type(const Type& whole);
Type stack_type(const Type& row, int64_t rows);

// A graph without ops that are run for their effect alone, in its bodies too.
Graph without_effects(const Graph& graph);

// Whether running the node does more than computing its outputs: an op with an effect, or a body with one.
bool has_effect(const Node& node);

// Graphviz.
std::string to_dot(const Graph& graph);

// For each node, how often its outputs are read by nodes and by the graph's outputs.
std::vector<int32_t> count_uses(const Graph& graph);

// A graph without the nodes that no output and no effect needs. Inputs stay.
Graph without_dead_nodes(const Graph& graph);

}  // namespace pg
