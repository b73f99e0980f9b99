// ModelBuilder: builds a model op by op, without a script. Importers of other formats use it.
//
//   ModelBuilder b("mlp");
//   Value x = b.argument("x", {DType::kFloat32, {}, {8, 4}});
//   x = b.call("linear", {x, b.parameter("weight", weight), b.parameter("bias", bias)})[0];
//   b.result(b.call("leaky_relu", {x}, {{"negative_slope", 0.1}})[0]);
//   LoadedModel mlp = b.finish();  // save_model writes it, FrozenGraph runs it
//
// The values are those of a trace (GraphBuilder): they have a type and no elements. The model accepts arguments of
// other types too: a run infers the types again. What the importer decided by a size is fixed by size().
#pragma once
#include <memory>

#include "graph/io/model_file.h"
#include "graph/ir/builder.h"
#include "tensor/function_ref.h"

namespace pg {

class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name = "graph");
  ~ModelBuilder();
  ModelBuilder(const ModelBuilder&) = delete;

  // Inputs. An argument is passed to each run, in the order of these calls.
  Value argument(std::string name, const Type& type);
  Value parameter(std::string name, const Value& value, GradReq req = GradReq::kWrite);
  Value state(std::string name, const Value& value);

  // Applies an op as a script would, with the same checks and errors. `inputs` are flattened in the order of the op's
  // row: numbers, values of this builder, or tensors, which become constants. Optional inputs are undefined, or left
  // out at the end. Attributes may have the kinds that as_kind (tensor/attr_check.h) accepts.
  Values call(std::string_view op, std::vector<Value> inputs, const NamedAttrs& attrs = {});

  // Branches and loops (graph/ir/control.h). The functions are called once, before these return. What they build
  // becomes a body, which may use all values that exist so far. Their own values are valid only inside of them.
  using Branch = FunctionRef<Values()>;
  // `predicate` has one element. Both branches return the same types. Returns the results of the one that runs.
  Values branch(const Value& predicate, Branch then, Branch otherwise);

  struct Loop {
    Values slices = {};                  // a step gets one row of each
    Values carries = {};                 // as the first step gets them
    Value count = {};                    // a 0-dim tensor of a whole number of steps
    int64_t limit = LoopForm::kNoLimit;  // without slices: most steps, and the number of rows of the stacked results
  };
  struct Step {
    Values carries = {};  // for the next step, of the same types
    Values stacked = {};
  };
  using Body = FunctionRef<Step(const Value& index, std::span<const Value> slices, std::span<const Value> carries)>;
  using Condition = FunctionRef<Value(const Value& index, std::span<const Value> carries)>;
  // The loop ends after the rows of the slices, `count` or `limit` steps, or before a step for which the condition is
  // zero. Returns the number of steps that ran, the carries of the last one, and the stacked results.
  Values loop(const Loop& loop, Body step);
  Values loop(const Loop& loop, Body step, Condition condition);

  // Where the calls that follow come from: "model.onnx: node 7". Their errors are PositionedErrors with this text.
  void at(std::string position);

  // Returns a size of the value. The model then refuses arguments for which it is another one.
  int64_t size(const Value& value, int dim);

  // Adds a result of the model.
  void result(const Value& value);
  // After each run the state or parameter takes this value.
  void write(const Value& input, const Value& value);

  // Returns the verified model and the values of its inputs. The builder is then empty.
  LoadedModel finish();

 private:
  class Trace;
  struct Part;
  Part trace(std::span<const Type> inputs, FunctionRef<Values(std::span<const Value>)> f);
  Values apply_control(Control control, std::span<Part> parts, Values operands);
  template <class F>
  Values positioned(F&& f);
  Values apply_branch(const Value& predicate, Branch then, Branch otherwise);
  Values apply_loop(const Loop& loop, Body step, const Condition* condition);
  Value as_flag(const Value& value);
  Value add_input(ModelInput input, const Type& type, Value value);
  int32_t output(const Value& value);

  std::unique_ptr<Trace> trace_;
  GraphBuilder* innermost_;  // the builder of the body that is being traced, or trace_
  Context ctx_;
  LoadedModel out_;
};

}  // namespace pg
