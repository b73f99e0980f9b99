// Model: a traced graph, and the meaning of its inputs and outputs to a caller. An export holds a model, and a Graph of
// scripts is made from one. A model has no values of parameters: these belong to the code that runs it.
#pragma once
#include "graph/ir/control.h"
#include "tensor/context.h"

namespace pg {

// The nested structure of arguments or results.
struct Tree {
  enum class Kind : uint8_t { kNil, kBoolean, kNumber, kString, kInput, kOutput, kTable };
  Kind kind = Kind::kNil;
  bool boolean = false;
  int32_t index = 0;  // of kInput and kOutput: the number of the input or output of the graph
  double number = 0;
  std::string text;
  std::vector<Tree> keys;  // of kTable: numbers and strings, one per entry of `values`
  std::vector<Tree> values;

  static Tree input(int32_t index);
  static Tree output(int32_t index);
  bool operator==(const Tree& other) const;  // NaN equals NaN
};

inline constexpr int kMaxTreeDepth = 100;
inline constexpr int kMaxGraphDepth = 256;  // bodies within bodies; scripts may nest 200

struct ModelInput {
  enum class Role : uint8_t {
    kArgument,
    kParameter,  // a parameter of the block, named by its dotted path
    kState,      // a tensor that belongs only to the graph
  };
  Role role = Role::kArgument;
  std::string name;
  // Only parameters use the fields below:
  GradReq req = GradReq::kWrite;
  bool differentiable = true;
  bool constant = false;
  double lr_mult = 1, wd_mult = 1;
};

struct ModelGenerator {
  bool is_default = true;  // the default generator of the code that runs it; else its own, which starts from `state`
  RandomKey state;
};

struct Model {
  // After each run the input takes the value of the output.
  struct Write {
    int32_t input = 0, output = 0;
  };

  std::string name = "graph";
  Graph graph;
  std::vector<ModelInput> inputs;  // one per input of the graph
  std::vector<Write> writes;
  std::vector<Tree> arguments, results;  // leaves of arguments are inputs; leaves of results are outputs or inputs
  std::vector<ModelGenerator> generators;

  const Type& input_type(size_t i) const { return graph.nodes[size_t(graph.inputs[i])].types[0]; }
};

// Whether a traced graph can contain the op: it is not hidden, or it belongs to indexing, branches or loops.
bool is_for_programs(const OpDef& op);
// Returns the op of this name. Throws Error, with a suggestion, if a traced graph cannot contain it.
const OpDef& op_for_programs(std::string_view name, bool hidden_ops = false);

// Gives an input node the name and the gradient request that the model has for it.
void describe_input(Node& node, const ModelInput& input);
// Returns the parameters and states that no run of the model writes.
std::vector<int32_t> lasting_inputs(const Model& model);
std::vector<ModelGenerator> describe_generators(std::span<const Ref<Generator>> generators,
                                                const Ref<Generator>& default_generator);

// Checks everything that a file could get wrong, so that running the model is as safe as running a script:
// verify(Graph), operands and attributes by the rows of the ops, inferred types, names, trees, writes and generators.
// Rejects ops that scripts cannot call, unless hidden_ops is set. Throws Error "graph: …".
void verify(const Model& model, bool hidden_ops = false);

// Names of the outputs of nodes: "linear3", "batch_norm4:2". Inputs keep their own names. In the order of the nodes.
struct Internal {
  std::string name;
  Operand operand;
};
std::vector<Internal> internals(const Model& model);

// Whether the operand can be computed without further inputs. If so, marks all nodes that it needs.
bool also_needed(const Graph& graph, const Operand& operand, std::vector<char>& needed);

// Returns a model whose results are these outputs of nodes. A write is kept if the model contains the nodes it needs.
// Inputs that nothing needs are removed, except arguments. `kept` returns the numbers of the inputs that were kept.
Model with_outputs(const Model& model, std::span<const Operand> outputs, std::vector<int32_t>* kept = nullptr);

// Returns the types of the results' tensors for arguments of these types (one per input of the graph). Throws the
// errors of ops, and Retrace on a guard failure.
std::vector<Type> infer(const Model& model, std::span<const Type> inputs);

// Applies the graph op by op in the context, as the traced script would: eagerly, or into the trace under construction.
Values replay(Context& ctx, const Graph& graph, std::span<const Value> inputs,
              std::span<const Ref<Generator>> generators);

}  // namespace pg
