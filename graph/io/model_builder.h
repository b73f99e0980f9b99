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
  Value add_input(ModelInput input, const Type& type, Value value);
  int32_t output(const Value& value);

  std::unique_ptr<Trace> trace_;
  Context ctx_;
  LoadedModel out_;
};

}  // namespace pg
