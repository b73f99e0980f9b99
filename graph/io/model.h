// Model: a traced graph together with what its inputs and outputs mean to a caller. What an export holds, what a Graph
// of scripts is made of. A value without parameters' values: those belong to whoever runs it.
#pragma once
#include "graph/ir/ir.h"
#include "tensor/context.h"

namespace pg {

// The nesting of arguments or results.
struct Tree {
  enum class Kind : uint8_t { kNil, kBoolean, kNumber, kString, kInput, kOutput, kTable };
  Kind kind = Kind::kNil;
  bool boolean = false;
  int32_t index = 0;  // of kInput and kOutput: which one of the graph
  double number = 0;
  std::string text;
  std::vector<Tree> keys;  // of kTable: numbers and strings, one for each of `values`
  std::vector<Tree> values;

  static Tree input(int32_t index);
  static Tree output(int32_t index);
  bool operator==(const Tree& other) const;  // NaN equals NaN
};

inline constexpr int kMaxTreeDepth = 100;
inline constexpr int kMaxGraphDepth = 256;  // bodies within bodies; a script nests up to 200

struct ModelInput {
  enum class Role : uint8_t {
    kArgument,
    kParameter,  // of the block, by its dotted path
    kState,      // a tensor that belongs to the graph alone
  };
  Role role = Role::kArgument;
  std::string name;
  // Of parameters:
  GradReq req = GradReq::kWrite;
  bool differentiable = true;
  bool constant = false;
  double lr_mult = 1, wd_mult = 1;
};

struct ModelGenerator {
  bool is_default = true;  // the one of whoever runs it; else one of its own that starts from `state`
  RandomKey state;
};

struct Model {
  // After each run an input holds what an output is.
  struct Write {
    int32_t input = 0, output = 0;
  };

  std::string name = "graph";
  Graph graph;
  std::vector<ModelInput> inputs;  // one for each of the graph
  std::vector<Write> writes;
  std::vector<Tree> arguments, results;  // leaves of arguments are inputs; of results, outputs or inputs themselves
  std::vector<ModelGenerator> generators;

  const Type& input_type(size_t i) const { return graph.nodes[size_t(graph.inputs[i])].types[0]; }
  int32_t find_input(std::string_view input) const;  // -1 when there is none
};

// Whether a script can have put the op into a traced graph: those of the registry that are not hidden, and what
// indexing makes.
bool is_for_programs(const OpDef& op);

// Checks everything that a file could get wrong, so that running the model is no more dangerous than running a script:
// verify(Graph), operands and attributes by the rows of the ops, types anew, names, trees, writes, generators. Ops that
// scripts cannot call are refused unless hidden_ops. Throws Error "graph: …".
void verify(const Model& model, bool hidden_ops = false);

// Names for the outputs of nodes, "linear3" or "batch_norm4:2"; those of inputs are their own. In the order of the
// nodes.
struct Internal {
  std::string name;
  Operand operand;
};
std::vector<Internal> internals(const Model& model);

// Whether the operand is computed from needed nodes alone; then what it takes besides is needed too.
bool also_needed(const Graph& graph, const Operand& operand, std::vector<char>& needed);

// A model with these outputs of nodes as results. Writes stay where what they need is part of it; inputs that nothing
// needs go, but for arguments; `kept` tells which stayed.
Model with_outputs(const Model& model, std::span<const Operand> outputs, std::vector<int32_t>* kept = nullptr);

// The types of the results' tensors when the arguments have these types (one for each input of the graph). Throws the
// errors of ops, and Retrace where a guard does not hold.
std::vector<Type> infer(const Model& model, std::span<const Type> inputs);

// The graph applied op by op in the context, as the script that was traced would: eagerly, or into the trace under way.
Values replay(Context& ctx, const Graph& graph, std::span<const Value> inputs,
              std::span<const Ref<Generator>> generators);

}  // namespace pg
