#include "graph/io/model_builder.h"

#include "graph/ir/builder.h"
#include "tensor/attr_check.h"

namespace pg {

class ModelBuilder::Trace : public GraphBuilder {
 public:
  Trace() : GraphBuilder(Stage::kTrace) {}
  std::string line;
  std::string position() override { return line; }
};

namespace {

Value contiguous(const Value& value) {
  Context eager;
  return to_contiguous(eager, value.detached());
}

// Adds the optional inputs that the caller left out.
void complete(const OpDef& op, std::vector<Value>& inputs) {
  for (size_t i = inputs.size(); i < op.inputs.size() && op.inputs[i].arity == Arity::kOptional; ++i)
    inputs.emplace_back();
}

}  // namespace

ModelBuilder::ModelBuilder(std::string name) : trace_(new Trace) {
  out_.model.name = std::move(name);
  ctx_.interpreter = trace_.get();
}
ModelBuilder::~ModelBuilder() = default;

Value ModelBuilder::add_input(ModelInput input, const Type& type, Value value) {
  Value symbol = trace_->add_input(type);
  describe_input(trace_->graph.nodes.back(), input);
  out_.model.inputs.push_back(std::move(input));
  out_.values.push_back(std::move(value));
  return symbol;
}

Value ModelBuilder::argument(std::string name, const Type& type) {
  out_.model.arguments.push_back(Tree::input(int32_t(out_.model.inputs.size())));
  return add_input({ModelInput::Role::kArgument, std::move(name)}, type, {});
}

Value ModelBuilder::parameter(std::string name, const Value& value, GradReq req) {
  return add_input({ModelInput::Role::kParameter, std::move(name), req}, value.type(), contiguous(value));
}

Value ModelBuilder::state(std::string name, const Value& value) {
  return add_input({ModelInput::Role::kState, std::move(name)}, value.type(), contiguous(value));
}

Values ModelBuilder::call(std::string_view name, std::vector<Value> inputs, const NamedAttrs& given) try {
  const OpDef& op = op_for_programs(name);
  if (op.has(kBodies)) fail(op.name, "a branch or loop is built by GraphBuilder::control");
  complete(op, inputs);
  for (Value& v : inputs)
    if (v.is_array() && v.array().buffer) v = contiguous(v);
  Attrs attrs = checked_attrs(op, given);
  if (op.complete) op.complete(ctx_, op, inputs, attrs);
  return apply(ctx_, op, inputs, attrs);
} catch (const PositionedError&) {
  throw;
} catch (const Error& error) {
  if (trace_->line.empty()) throw;
  throw PositionedError(error_at(trace_->line, error.what()));
}

void ModelBuilder::at(std::string position) { trace_->line = std::move(position); }

int64_t ModelBuilder::size(const Value& value, int dim) {
  const int64_t size = value.shape()[dim];
  trace_->guard(value, TypeGuard::kDim, dim, size);
  return size;
}

int32_t ModelBuilder::output(const Value& value) {
  if (!value.is_array()) throw Error("graph: a result must be a tensor");
  trace_->graph.outputs.push_back(trace_->operand_of(value));
  return int32_t(trace_->graph.outputs.size()) - 1;
}

void ModelBuilder::result(const Value& value) { out_.model.results.push_back(Tree::output(output(value))); }

void ModelBuilder::write(const Value& input, const Value& value) {
  const std::vector<int32_t>& inputs = trace_->graph.inputs;
  const auto at = std::find(inputs.begin(), inputs.end(), trace_->owns(input) ? trace_->symbol_of(input).node : -1);
  if (at == inputs.end()) throw Error("graph: only a state or parameter can be written");
  const int32_t k = int32_t(at - inputs.begin());
  if (out_.model.inputs[size_t(k)].role == ModelInput::Role::kArgument || !(input.type() == value.type()))
    throw Error(fmt::format("graph: '{}' is {}, which cannot take {}", out_.model.inputs[size_t(k)].name,
                            to_string(input.type()), to_string(value.type())));
  out_.model.writes.push_back({k, output(value)});
}

LoadedModel ModelBuilder::finish() {
  LoadedModel out = std::exchange(out_, {});
  out.model.graph = without_dead_nodes(trace_->graph);
  out.model.generators = describe_generators(trace_->generators, ctx_.generator);
  trace_ = std::make_unique<Trace>();
  ctx_.interpreter = trace_.get();
  verify(out.model);
  return out;
}

}  // namespace pg
