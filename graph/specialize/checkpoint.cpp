// Checkpointed loops (Chen et al. 2016, "Training deep nets with sublinear memory cost"): a loop over chunks of steps
// whose gradient keeps the carries at the start of each chunk and runs the chunk again. Stacks of a chunk live while it
// is gone back through.
#include "graph/specialize/control.h"
#include "tensor/rule.h"

namespace pg {
namespace {

using Parts = std::span<const Value>;

// The operands of a loop in flag form, by kind.
struct Operands {
  Operands(const Node& node, const Values& in) {
    const size_t slices_at = size_t(node.loop.first_slice(false)), carries_at = slices_at + size_t(node.loop.slices);
    const size_t captures_at = carries_at + size_t(node.loop.carries);
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

// Writes the body of a loop: `write` gets index, slices, carries, captures and answers the outputs.
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
  return std::make_shared<const Graph>(std::move(builder.graph));
}

// A loop node without operands' nodes; types as the body gives them.
Node loop_node(const Node& like, LoopForm form, std::shared_ptr<const Graph> body) {
  Node node;
  node.kind = NodeKind::kLoop;
  node.name = like.name;
  node.loop = form;
  const size_t flag = form.conditional;
  node.types.push_back(index_type());
  for (size_t k = flag; k < body->outputs.size(); ++k) {
    const Type& type = body->type(body->outputs[k]);
    node.types.push_back(k - flag < size_t(form.carries) ? type : stack_type(type, std::max<int64_t>(form.limit, 0)));
  }
  node.bodies = {std::move(body)};
  return node;
}

// Streams of the loop over chunks of so many steps.
std::vector<BodyStream> chunk_streams(std::vector<BodyStream> streams, int64_t size) {
  for (BodyStream& s : streams) s.chunk = uint64_t(size);
  return streams;
}

// Streams of the loop over the steps of a chunk.
std::vector<BodyStream> inner_streams(const std::vector<BodyStream>& streams, std::vector<uint64_t>& ticks) {
  std::vector<BodyStream> inner;
  for (const BodyStream& s : streams) {
    inner.push_back({.generator = s.generator, .inner = true});
    if (ticks.size() <= s.generator) ticks.resize(s.generator + 1);
    ticks[s.generator] = 1;
  }
  return inner;
}

// The node with room for so many operands.
Node with_operands(Node node, size_t count) {
  node.inputs.clear();
  for (size_t k = 0; k < count; ++k) node.inputs.push_back({});
  return node;
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
  return call<"reshape">(Var(ctx, v), {{"shape", ints(shape)}}).value();
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

// The number of the step before a chunk's first.
Value chunk_base(Context& ctx, const Value& index, int64_t size) {
  return call<"mul">(call<"sub">(Var(ctx, index), Var(1.0)), Var(double(size))).value();
}

// A body whose last capture is the number of the steps before its first.
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

// A known number of steps: whole chunks, then the rest as a loop of its own.
Values Specializer::checkpointed(const Node& node, const Values& in) {
  const int64_t size = node.loop.checkpoint;
  Node plain = node;
  plain.loop.checkpoint = 0;
  if (node.loop.conditional || node.loop.counted) return checkpointed_while(plain, in, size);
  const Operands parts(node, in);
  const int64_t steps = parts.slices.empty() ? node.loop.limit : parts.slices[0].shape()[0], chunks = steps / size,
                rest = steps % size;
  if (chunks <= 1) return loop(plain, in);
  const size_t carries = parts.carries.size();
  const std::shared_ptr<const Graph> body = with_base(ctx_, *node.bodies[0], parts);
  Operands whole = parts, last = parts;
  for (size_t k = 0; k < parts.slices.size(); ++k) {
    const Value& v = parts.slices[k];
    whole.slices[k] = reshape(ctx_, narrow_rows(ctx_, v, 0, chunks * size), in_chunks(v.shape(), chunks, size));
    last.slices[k] = narrow_rows(ctx_, v, chunks * size, rest);
  }
  LoopForm form = plain.loop;
  form.limit = size;
  std::vector<uint64_t> ticks;
  Node inner = loop_node(node, form, body);
  inner.streams = inner_streams(node.streams, ticks);
  const auto chunk = body_graph(ctx_, whole, true, [&](GraphBuilder& builder, const Operands& inputs) {
    Operands own = inputs;
    own.captures.push_back(chunk_base(ctx_, inputs.first[0], size));
    own.first = {};
    builder.graph.ticks = ticks;
    return tail(builder.control(ctx_, inner, own.all(), {}), 1);
  });
  form.limit = chunks;
  form.recompute = true;
  Node outer = loop_node(node, form, chunk);
  outer.line = node.line;
  outer.streams = chunk_streams(node.streams, size);
  Values out = loop(with_operands(outer, whole.all().size()), whole.all());
  for (size_t k = 1 + carries; k < out.size(); ++k) out[k] = reshape(ctx_, out[k], in_rows(out[k].shape()));
  if (rest > 0) {
    for (size_t k = 0; k < carries; ++k) last.carries[k] = out[1 + k];
    last.captures.push_back(builder_.filled(ctx_, index_type(), double(chunks * size)));
    form = plain.loop;
    form.limit = rest;
    Node remainder = loop_node(node, form, body);
    remainder.line = node.line;
    remainder.streams = node.streams;
    for (BodyStream& stream : remainder.streams) stream.before = uint64_t(chunks * size);
    const Values more = loop(with_operands(remainder, last.all().size()), last.all());
    for (size_t k = 0; k < carries; ++k) out[1 + k] = more[1 + k];
    for (size_t k = 1 + carries; k < out.size(); ++k) {
      const Var both[2] = {Var(ctx_, out[k]), Var(ctx_, more[k])};
      out[k] = call_list<"cat">(both, {{"dim", int64_t(1)}}).value();
    }
  }
  out[0] = builder_.filled(ctx_, index_type(), double(steps));
  return out;
}

// A number of steps that a condition or a count decides. The chunks carry the condition and the number of steps.
Values Specializer::checkpointed_while(const Node& node, const Values& in, int64_t size) {
  Node traced = node;
  Values operands = in;
  if (node.loop.counted) close_count(traced, operands);
  const int64_t limit = traced.loop.limit;
  const size_t carries = size_t(traced.loop.carries), stacks = traced.types.size() - 1 - carries;
  if (limit < 0 && stacks > 0) return loop(traced, operands);
  Operands parts(traced, operands);
  const Value flag = parts.first[0], none = builder_.filled(ctx_, index_type(), 0);

  Operands inner_in = parts;  // the flag is carried besides
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
  Node inner = loop_node(node, form, body);
  inner.streams = inner_streams(node.streams, ticks);
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
  Node outer = loop_node(node, form, chunk);
  outer.line = node.line;
  outer.streams = chunk_streams(node.streams, size);
  Operands given = chunk_in;
  if (limit == 0) given.first = {builder_.filled(ctx_, flag.type(), 0)};
  const Values found = loop(with_operands(outer, given.all().size()), given.all());
  Values out{found[2 + carries]};
  append(out, Parts(found).subspan(1, carries));
  for (size_t k = 3 + carries; k < found.size(); ++k)
    out.push_back(narrow_rows(ctx_, reshape(ctx_, found[k], in_rows(found[k].shape())), 0, limit));
  return out;
}

// A counted loop as one whose condition compares the number of the step with the count.
void Specializer::close_count(Node& node, Values& in) {
  Operands parts(node, in);
  const Value count = parts.first[0];
  const bool conditional = node.loop.conditional;
  const Value some = call<"ge">(Var(ctx_, count), Var(1.0)).value();
  const Value flag = conditional ? call<"logical_and">(Var(ctx_, some), Var(ctx_, parts.first[1])).value() : some;
  parts.first = {flag};
  parts.captures.push_back(count);
  const Graph& body = *node.bodies[0];
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
  node.bodies = {counted};
  node.loop.counted = false;
  node.loop.conditional = true;
  in = parts.all();
  node = with_operands(node, in.size());
}

}  // namespace pg
