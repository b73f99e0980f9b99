// Checkpointed loops (Chen et al. 2016, "Training deep nets with sublinear memory cost"). The steps are grouped into
// chunks, and the loop becomes a loop over chunks. Its gradient keeps only the carries at the start of each chunk and
// runs the chunk again. The stacks of a chunk live only while its gradient is computed.
#include "graph/specialize/control.h"
#include "tensor/rule.h"

namespace pg {
namespace {

using Parts = std::span<const Value>;

// The operands of a loop by kind. The condition, if any, is closed (see close_condition).
struct Operands {
  Operands(const LoopForm& form, const Values& in) {
    const size_t slices_at = size_t(form.first_slice(false)), carries_at = slices_at + size_t(form.slices);
    const size_t captures_at = carries_at + size_t(form.carries);
    for (size_t k = 0; k < in.size(); ++k)
      (k < slices_at ? first : k < carries_at ? slices : k < captures_at ? carries : captures).push_back(in[k]);
  }
  Values first, slices, carries, captures;

  Values all() const {
    Values out = first;
    for (const Values* part : {&slices, &carries, &captures}) append(out, *part);
    return out;
  }
};

// A spliced body has the types of its trace. Infers them again from the types of the inputs, which a later call may
// have changed. Branches and loops in it keep theirs: where these do not fit any more, the function is traced again.
void infer_again(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.kind == NodeKind::kInput || node.kind == NodeKind::kConstant || is_control(node)) continue;
    if (node.kind != NodeKind::kOp) {
      const size_t heads = size_t(node.heads), first = node.kind == NodeKind::kGradient ? 2 * heads
                                                       : node.kind == NodeKind::kCustom ? heads
                                                                                        : 0;
      for (size_t k = 0; k < node.types.size(); ++k)
        if (const Operand& like = node.inputs[first + k]; like.is_node()) node.types[k] = graph.type(like);
      continue;
    }
    Values in;
    for (const Operand& operand : node.inputs)
      in.push_back(operand.is_node()     ? Value(Array::make(graph.type(operand)))
                   : operand.is_number() ? Value(operand.number)
                                         : Value());
    SmallVector<Type, 2> types;
    infer_types(*node.op, in, node.attrs, types);
    for (size_t k = 0; k < node.types.size(); ++k) node.types[k] = types[k];
  }
}

// Writes the body of a loop. `write` takes the index, slices, carries and captures, and returns the outputs.
template <class Write>
std::shared_ptr<const Graph> body_graph(Context& ctx, const Operands& in, bool rows, Write write) {
  GraphBuilder builder(GraphBuilder::Stage::kTrace);
  Interpreter* const outer = std::exchange(ctx.interpreter, &builder);
  const ScopedFlag quiet(ctx.recording, false);
  Operands inputs = in;
  inputs.first = {builder.add_input(index_type())};
  for (Value& v : inputs.slices) v = builder.add_input(rows ? row_type(v.type()) : v.type());
  for (Values* part : {&inputs.carries, &inputs.captures})
    for (Value& v : *part) v = builder.add_input(v.type());
  try {
    for (const Value& v : write(builder, inputs)) builder.graph.outputs.push_back(builder.operand_of(v));
  } catch (...) {
    ctx.interpreter = outer;
    throw;
  }
  ctx.interpreter = outer;
  infer_again(builder.graph);
  return std::make_shared<const Graph>(std::move(builder.graph));
}

// A loop made from `like`: over some of its steps, or over chunks of them.
Control loop_over(const Control& like, const LoopForm& form, std::shared_ptr<const Graph> body,
                  std::vector<BodyStream> streams) {
  Control out = like;
  out.loop = form;
  out.bodies = {std::move(body)};
  out.streams = std::move(streams);
  return out;
}

// The streams of the loop over chunks of `size` steps.
std::vector<BodyStream> chunk_streams(std::vector<BodyStream> streams, int64_t size) {
  for (BodyStream& s : streams) s.chunk = uint64_t(size);
  return streams;
}

// The streams of the loop over the steps of a chunk.
std::vector<BodyStream> inner_streams(const std::vector<BodyStream>& streams, std::vector<uint64_t>& ticks) {
  std::vector<BodyStream> inner;
  for (const BodyStream& s : streams) {
    inner.push_back({.generator = s.generator, .inner = true});
    if (ticks.size() <= s.generator) ticks.resize(s.generator + 1);
    ticks[s.generator] = 1;
  }
  return inner;
}

Values tail(const Values& values, size_t first) {
  Values out;
  append(out, Parts(values).subspan(first));
  return out;
}

Value narrow_rows(Context& ctx, const Value& v, int64_t start, int64_t rows) {
  return call<"narrow">(Var(ctx, v), {{"dim", int64_t(1)}, {"start", start + 1}, {"length", rows}}).value();
}

Value reshape(Context& ctx, const Value& v, const Dims& shape) {
  return call<"reshape_to">(Var(ctx, v), {{"shape", ints(shape)}}).value();
}

Dims in_chunks(const Dims& shape, int64_t chunks, int64_t size) {
  Dims out{chunks, size};
  for (int64_t n : std::span(shape).subspan(1)) out.push_back(n);
  return out;
}

Dims in_rows(const Dims& shape) {
  Dims out{shape[0] * shape[1]};
  for (int64_t n : std::span(shape).subspan(2)) out.push_back(n);
  return out;
}

// The number of steps before the first step of a chunk.
Value chunk_base(Context& ctx, const Value& index, int64_t size) {
  return call<"mul">(call<"sub">(Var(ctx, index), Var(1.0)), Var(double(size))).value();
}

// The body with one more capture, the last: the number of steps before the first. It is added to the index.
std::shared_ptr<const Graph> with_base(Context& ctx, const Graph& body, const Operands& in) {
  Operands based = in;
  based.captures.push_back(Value(Array::make(index_type())));
  return body_graph(ctx, based, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    own.first = {call<"add">(Var(ctx, inputs.first[0]), Var(ctx, inputs.captures[inputs.captures.size() - 1])).value()};
    own.captures.pop_back();
    return builder.splice(ctx, body, own.all());
  });
}

}  // namespace

// If the number of steps is known: a loop over whole chunks, then a loop over the remaining steps.
Values Specializer::checkpointed(const Control& control, const Values& in) {
  const int64_t size = control.loop.checkpoint;
  Control plain = control;
  plain.loop.checkpoint = 0;
  if (plain.loop.conditional || plain.loop.counted) return checkpointed_while(plain, in, size);
  const Operands parts(plain.loop, in);
  const int64_t steps = parts.slices.empty() ? plain.loop.limit : parts.slices[0].shape()[0], chunks = steps / size,
                rest = steps % size;
  if (chunks <= 1) return loop(plain, in);
  const size_t carries = parts.carries.size();
  const std::shared_ptr<const Graph> body = with_base(ctx_, *plain.bodies[0], parts);
  Operands whole = parts, last = parts;
  for (size_t k = 0; k < parts.slices.size(); ++k) {
    const Value& v = parts.slices[k];
    whole.slices[k] = reshape(ctx_, narrow_rows(ctx_, v, 0, chunks * size), in_chunks(v.shape(), chunks, size));
    last.slices[k] = narrow_rows(ctx_, v, chunks * size, rest);
  }
  LoopForm form = plain.loop;
  form.limit = size;
  std::vector<uint64_t> ticks;
  Control inner = loop_over(plain, form, body, inner_streams(plain.streams, ticks));
  inner.line = -1;
  const auto chunk = body_graph(ctx_, whole, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    own.captures.push_back(chunk_base(ctx_, inputs.first[0], size));
    own.first = {};
    builder.graph.ticks = ticks;
    return tail(builder.control(ctx_, inner, own.all(), {}), 1);
  });
  form.limit = chunks;
  form.recompute = true;
  Values out = loop(loop_over(plain, form, chunk, chunk_streams(plain.streams, size)), whole.all());
  for (size_t k = 1 + carries; k < out.size(); ++k) out[k] = reshape(ctx_, out[k], in_rows(out[k].shape()));
  if (rest > 0) {
    for (size_t k = 0; k < carries; ++k) last.carries[k] = out[1 + k];
    last.captures.push_back(builder_.filled(ctx_, index_type(), double(chunks * size)));
    form = plain.loop;
    form.limit = rest;
    Control remainder = loop_over(plain, form, body, plain.streams);
    for (BodyStream& stream : remainder.streams) stream.before = uint64_t(chunks * size);
    const Values more = loop(remainder, last.all());
    for (size_t k = 0; k < carries; ++k) out[1 + k] = more[1 + k];
    for (size_t k = 1 + carries; k < out.size(); ++k) {
      const Var both[2] = {Var(ctx_, out[k]), Var(ctx_, more[k])};
      out[k] = call_list<"cat">(both, {{"dim", int64_t(1)}}).value();
    }
  }
  out[0] = builder_.filled(ctx_, index_type(), double(steps));
  return out;
}

// If a condition or a count decides the number of steps: the loop over chunks carries the condition and that number.
Values Specializer::checkpointed_while(const Control& control, const Values& in, int64_t size) {
  Control traced = control;
  Values operands = in;
  if (traced.loop.counted) close_count(traced, operands);
  const int64_t limit = traced.loop.limit;
  const size_t carries = size_t(traced.loop.carries), stacks = traced.bodies[0]->outputs.size() - 1 - carries;
  if (limit < 0 && stacks > 0) return loop(traced, operands);
  Operands parts(traced.loop, operands);
  const Value flag = parts.first[0], none = builder_.filled(ctx_, index_type(), 0);

  Operands inner_in = parts;  // the flag is an additional carry
  inner_in.carries.push_back(flag);
  Operands chunk_in = inner_in;
  chunk_in.carries.push_back(none);
  inner_in.captures.push_back(none);
  const auto body = body_graph(ctx_, inner_in, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    const Value index =
        call<"add">(Var(ctx_, inputs.first[0]), Var(ctx_, inputs.captures[inputs.captures.size() - 1])).value();
    own.first = {index};
    own.captures.pop_back();
    own.carries.pop_back();
    const Values found = builder.splice(ctx_, *traced.bodies[0], own.all());
    Value more = found[0];
    if (limit >= 0)
      more = call<"logical_and">(Var(ctx_, more), call<"lt">(Var(ctx_, index), Var(double(limit)))).value();
    Values out{more};
    for (size_t k = 0; k < carries; ++k) out.push_back(found[1 + k]);
    out.push_back(more);
    append(out, Parts(found).subspan(1 + carries));
    return out;
  });
  LoopForm form = traced.loop;
  form.limit = size;
  form.carries = int32_t(carries + 1);
  std::vector<uint64_t> ticks;
  Control inner = loop_over(traced, form, body, inner_streams(traced.streams, ticks));
  inner.line = -1;
  const auto chunk = body_graph(ctx_, chunk_in, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    own.captures.push_back(chunk_base(ctx_, inputs.first[0], size));
    const Value before = own.carries[carries + 1];
    own.carries.pop_back();
    own.first = {own.carries[carries]};
    builder.graph.ticks = ticks;
    const Values found = builder.control(ctx_, inner, own.all(), {});
    Values out{found[1 + carries]};
    append(out, Parts(found).subspan(1, carries + 1));
    out.push_back(call<"add">(Var(ctx_, before), Var(ctx_, found[0])).value());
    append(out, Parts(found).subspan(2 + carries));
    return out;
  });
  form.limit = limit < 0 ? limit : (limit + size - 1) / size;
  form.carries = int32_t(carries + 2);
  form.recompute = true;
  Operands given = chunk_in;
  if (limit == 0) given.first = {builder_.filled(ctx_, flag.type(), 0)};
  const Values found = loop(loop_over(traced, form, chunk, chunk_streams(traced.streams, size)), given.all());
  Values out{found[2 + carries]};
  append(out, Parts(found).subspan(1, carries));
  for (size_t k = 3 + carries; k < found.size(); ++k)
    out.push_back(narrow_rows(ctx_, reshape(ctx_, found[k], in_rows(found[k].shape())), 0, limit));
  return out;
}

// Turns a counted loop into a conditional one, whose condition compares the number of the step with the count.
void Specializer::close_count(Control& control, Values& in) {
  Operands parts(control.loop, in);
  const Value count = parts.first[0];
  const bool conditional = control.loop.conditional;
  const Value some = call<"ge">(Var(ctx_, count), Var(1.0)).value();
  const Value flag = conditional ? call<"logical_and">(Var(ctx_, some), Var(ctx_, parts.first[1])).value() : some;
  parts.first = {flag};
  parts.captures.push_back(count);
  const Graph& body = *control.bodies[0];
  const auto counted = body_graph(ctx_, parts, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    own.captures.pop_back();
    const Values found = builder.splice(ctx_, body, own.all());
    Var more = call<"lt">(Var(ctx_, inputs.first[0]), Var(ctx_, inputs.captures[inputs.captures.size() - 1]));
    if (conditional) more = call<"logical_and">(more, Var(ctx_, found[0]));
    Values out{more.value()};
    append(out, Parts(found).subspan(conditional));
    return out;
  });
  control.bodies = {counted};
  control.loop.counted = false;
  control.loop.conditional = true;
  in = parts.all();
}

}  // namespace pg
