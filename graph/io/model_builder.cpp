#include "graph/io/model_builder.h"

#include <algorithm>

#include "tensor/attr_check.h"

namespace pg {

// The body of a branch or loop.
struct ModelBuilder::Part {
  std::unique_ptr<GraphBuilder> builder;
  Values inputs;  // before the captures
};

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

ModelBuilder::ModelBuilder(std::string name) : trace_(new Trace), innermost_(trace_.get()) {
  out_.model.name = std::move(name);
  ctx_.interpreter = innermost_;
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

// Returns f(). Its errors get the position of this call, unless an inner call has added one.
template <class F>
Values ModelBuilder::positioned(F&& f) {
  const std::string line = trace_->line;
  try {
    return f();
  } catch (const PositionedError&) {
    throw;
  } catch (const Error& error) {
    if (line.empty()) throw;
    throw PositionedError(error_at(line, error.what()));
  }
}

Values ModelBuilder::call(std::string_view name, std::vector<Value> inputs, const NamedAttrs& given) {
  return positioned([&] {
    const OpDef& op = op_for_programs(name);
    if (op.has(kBodies)) fail(op.name, "use ModelBuilder::branch or loop");
    complete(op, inputs);
    for (Value& v : inputs)
      if (v.is_array() && v.array().buffer) v = contiguous(v);
    Attrs attrs = checked_attrs(op, given);
    if (op.complete) op.complete(ctx_, op, inputs, attrs);
    return apply(ctx_, op, inputs, attrs);
  });
}

// Branches and loops ------------------------------------------------------------------------------------------------

ModelBuilder::Part ModelBuilder::trace(std::span<const Type> inputs, FunctionRef<Values(std::span<const Value>)> f) {
  Part part{std::make_unique<GraphBuilder>(GraphBuilder::Stage::kTrace, innermost_), {}};
  part.builder->own_streams = true;
  for (const Type& type : inputs) part.inputs.push_back(part.builder->add_input(type));
  struct Inside {
    ModelBuilder& b;
    GraphBuilder* outer = b.innermost_;
    void enter(GraphBuilder* builder) { b.ctx_.interpreter = b.innermost_ = builder; }
    ~Inside() { enter(outer); }
  } inside{*this};
  inside.enter(part.builder.get());
  for (const Value& v : f(part.inputs)) part.builder->graph.outputs.push_back(part.builder->operand_of(v));
  return part;
}

// All bodies get the captures of each, in one order.
Values ModelBuilder::apply_control(Control control, std::span<Part> parts, Values operands) {
  std::vector<Operand> captures;
  for (const Part& part : parts)
    for (size_t k = 0; k < part.builder->captures.size(); ++k) {
      const Operand& outside = part.builder->captures[k];
      if (std::find(captures.begin(), captures.end(), outside) != captures.end()) continue;
      captures.push_back(outside);
      operands.push_back(part.builder->captured_values[k]);
    }
  const size_t first = operands.size() - captures.size();
  for (Part& part : parts) {
    GraphBuilder& body = *part.builder;
    for (size_t c = 0; c < captures.size(); ++c) {
      const size_t k =
          size_t(std::find(body.captures.begin(), body.captures.end(), captures[c]) - body.captures.begin());
      part.inputs.push_back(k < body.captures.size() ? body.capture_inputs[k]
                                                     : body.add_input(operands[first + c].type()));
    }
    body.graph.inputs.clear();
    for (const Value& v : part.inputs) body.graph.inputs.push_back(body.symbol_of(v).node);
    control.bodies.push_back(std::make_shared<const Graph>(without_dead_nodes(body.graph)));
  }
  control.streams = innermost_->take_streams(control.bodies);
  return innermost_->control(ctx_, control, operands, {});
}

// A 0-dim bool on the host.
Value ModelBuilder::as_flag(const Value& value) {
  const Value one = call("reshape", {value}, {{"shape", Ints{}}})[0];
  return call("to", {one}, {{"dtype", DType::kBool}, {"device", Device{}}})[0];
}

Values ModelBuilder::branch(const Value& predicate, Branch then, Branch otherwise) {
  return positioned([&] { return apply_branch(predicate, then, otherwise); });
}

Values ModelBuilder::apply_branch(const Value& predicate, Branch then, Branch otherwise) {
  const Value flag = as_flag(predicate);
  Part parts[] = {trace({}, [&](auto) { return then(); }), trace({}, [&](auto) { return otherwise(); })};
  const size_t results = parts[0].builder->graph.outputs.size(), others = parts[1].builder->graph.outputs.size();
  if (results != others) throw Error(fmt::format("cond: the branches return {} and {} results", results, others));
  return apply_control(Control::cond("cond"), parts, {flag});
}

Values ModelBuilder::loop(const Loop& loop, Body step) {
  return positioned([&] { return apply_loop(loop, step, nullptr); });
}
Values ModelBuilder::loop(const Loop& loop, Body step, Condition condition) {
  return positioned([&] { return apply_loop(loop, step, &condition); });
}

Values ModelBuilder::apply_loop(const Loop& loop, Body step, const Condition* condition) {
  LoopForm form;
  form.slices = int32_t(loop.slices.size());
  form.carries = int32_t(loop.carries.size());
  form.counted = loop.count.defined();
  form.conditional = condition != nullptr;
  form.limit = loop.limit;
  if (form.slices > 0 && loop.limit >= 0) throw Error("loop: takes slices or a limit, got both");
  Values operands;
  if (form.counted) operands.push_back(call("to", {loop.count}, {{"dtype", DType::kInt64}, {"device", Device{}}})[0]);
  const Type index{DType::kInt64, {}, {}};
  std::vector<Type> types{index}, flag_types{index};
  for (const Value& v : loop.slices) {
    if (v.rank() == 0) throw Error("loop: a slice has no dim to cut");
    form.limit = v.shape()[0];
    types.push_back(row_type(v.type()));
    operands.push_back(v);
  }
  for (const Value& v : loop.carries) {
    types.push_back(v.type());
    flag_types.push_back(v.type());
    operands.push_back(v);
  }
  const size_t slices = loop.slices.size();
  std::vector<Part> parts;
  parts.push_back(trace(types, [&](std::span<const Value> in) {
    Step out = step(in[0], in.subspan(1, slices), in.subspan(1 + slices));
    if (out.carries.size() != loop.carries.size())
      throw Error(fmt::format("loop: the step returns {} carries, expected {}", out.carries.size(), form.carries));
    for (Value& v : out.stacked) out.carries.push_back(std::move(v));
    return std::move(out.carries);
  }));
  if (condition)
    parts.push_back(trace(
        flag_types, [&](std::span<const Value> in) { return Values{as_flag((*condition)(in[0], in.subspan(1)))}; }));
  return apply_control(Control::loop_of("loop", form), parts, std::move(operands));
}

void ModelBuilder::at(std::string position) { trace_->line = std::move(position); }

int64_t ModelBuilder::size(const Value& value, int dim) {
  const int64_t size = value.shape()[dim];
  innermost_->guard(value, TypeGuard::kDim, dim, size);
  return size;
}

int32_t ModelBuilder::output(const Value& value) {
  if (innermost_ != trace_.get()) throw Error("graph: a body returns its results");
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
  if (innermost_ != trace_.get()) throw Error("graph: a body cannot finish the model");
  LoadedModel out = std::exchange(out_, {});
  out.model.graph = without_dead_nodes(trace_->graph);
  out.model.generators = describe_generators(trace_->generators, ctx_.generator);
  trace_ = std::make_unique<Trace>();
  ctx_.interpreter = innermost_ = trace_.get();
  verify(out.model);
  return out;
}

}  // namespace pg
