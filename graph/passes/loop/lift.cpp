// Ops over the rows of all steps: for each kind of op, how its application to one row becomes one application to all
// rows.
//
// Pointwise ops, conversions, sums along dims and picks from a table return the same bits as row by row. A product
// becomes one product with all rows as one matrix. Its kernel may add in another order: results differ by a few units
// in the last place of the largest term.
// units in the last place of the largest term.
#include "graph/passes/evaluate.h"
#include "graph/passes/loop/loop.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Ints to_ints(const Dims& dims) { return Ints(dims.begin(), dims.end()); }

}  // namespace

Operand Lifter::add_input(const Type& type, int32_t source) {
  Node input;
  input.kind = NodeKind::kInput;
  input.types.push_back(type);
  graph_.nodes.push_back(std::move(input));
  sources_.resize(graph_.nodes.size());
  sources_.back() = source;
  return Operand::of(graph_.nodes.size() - 1);
}

void Lifter::put(const Operand& operand, Kind kind, int32_t source) {
  const Type& type = body_.type(operand);
  places_[size_t(operand.node)] = {kind, add_input(kind == Kind::kRows ? stack_type(type, rows_) : type, source),
                                   operand.output};
}

Lifter::Kind Lifter::kind(const Operand& operand) const {
  const Place& place = places_[size_t(operand.node)];
  return place.output == operand.output ? place.kind : Kind::kNone;
}

bool Lifter::lift(size_t i) {
  const Node& node = body_.nodes[i];
  if (node.kind == NodeKind::kConstant) {
    graph_.nodes.push_back(node);
    places_[i] = {Kind::kSame, Operand::of(graph_.nodes.size() - 1), 0};
    return true;
  }
  if (!is_pure(node) || node.types.size() != 1) return false;
  bool any = false;
  for (const Operand& operand : node.inputs) {
    if (!operand.is_node()) continue;
    if (kind(operand) == Kind::kNone) return false;
    any |= rows(operand);
  }
  const size_t before = graph_.nodes.size();
  line = node.line;
  Operand at;
  try {
    if (any) {
      at = over_rows(node);
    } else {
      Operands inputs = node.inputs;
      for (Operand& operand : inputs)
        if (operand.is_node()) operand = this->at(operand);
      at = emit(*node.op, inputs, node.attrs);
    }
    if (at.is_node() && !(type(at) == (any ? stack_type(node.types[0], rows_) : node.types[0]))) at = {};
  } catch (const Error&) {
    at = {};
  }
  if (!at.is_node()) {
    graph_.nodes.resize(before);
    return false;
  }
  places_[i] = {any ? Kind::kRows : Kind::kSame, at, 0};
  return true;
}

Operand Lifter::emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs) {
  graph_.nodes.push_back(make_node(graph_, op, inputs, std::move(attrs), line));
  return Operand::of(graph_.nodes.size() - 1);
}

Operand Lifter::reshape(const Operand& x, const Dims& shape) {
  return type(x).shape == shape ? x : emit<"reshape_to">({x}, {{"shape", to_ints(shape)}});
}

Dims Lifter::with_rows(const Dims& shape) const {
  Dims out{rows_};
  for (int64_t size : shape) out.push_back(size);
  return out;
}

// All rows of an operand as an array of rank + 1 dims. The rows are padded with dims of size 1, so that they broadcast
// as one row does.
Operand Lifter::aligned(const Operand& operand, int rank) {
  const Dims& row = row_shape(operand);
  if (!rows(operand) || row.size() == rank) return at(operand);
  Dims shape{rows_};
  for (int d = row.size(); d < rank; ++d) shape.push_back(1);
  for (int64_t size : row) shape.push_back(size);
  return reshape(at(operand), shape);
}

// Flattens all but the last `keep` dims into one.
Operand Lifter::flattened(const Operand& x, int keep) {
  const Dims& shape = type(x).shape;
  const int lead = shape.size() - keep;
  Dims flat{1};
  for (int d = 0; d < lead; ++d) flat[0] *= shape[d];
  for (int d = lead; d < shape.size(); ++d) flat.push_back(shape[d]);
  return reshape(x, flat);
}

Operand Lifter::over_rows(const Node& node) {
  if (node.op->has(kPointwise) || node.is<"to">()) return pointwise(node);
  if (node.has(kProduct)) return product(node);
  if (node.is<"linear">()) return linear(node);
  if (node.has(kPick)) return pick(node);
  return node.has(kRowwise) ? rowwise(node) : view(node);
}

// Loop-invariant operands broadcast over the rows without a reshape: none has more dims than the result.
Operand Lifter::pointwise(const Node& node) {
  const Dims& shape = node.types[0].shape;
  Operands inputs = node.inputs;
  for (Operand& operand : inputs)
    if (operand.is_node()) operand = aligned(operand, shape.size());
  return emit(*node.op, inputs, node.attrs);
}

Operand Lifter::linear(const Node& node) {
  const Operand &x = node.inputs[0], &w = node.inputs[1], &b = node.inputs[2];
  if (!rows(x) || !same(w) || !same(b)) return {};
  const Operand inputs[] = {flattened(at(x), 1), at(w), b.is_node() ? at(b) : b};
  return reshape(emit(*node.op, inputs, node.attrs), with_rows(node.types[0].shape));
}

Operand Lifter::product(const Node& node) {
  const Operand &x = node.inputs[0], &y = node.inputs[1];
  if (!x.is_node() || !y.is_node()) return {};
  if (rows(x) && same(y) && row_shape(y).size() <= 2)
    return reshape(emit<"matmul">({flattened(at(x), 1), at(y)}), with_rows(node.types[0].shape));
  // A matrix or vector times one column per step: the columns become rows, multiplied with the transposed matrix.
  const bool column = row_shape(y).size() == 1 || (row_shape(y).size() == 2 && row_shape(y)[1] == 1);
  if (!same(x) || !rows(y) || row_shape(x).size() > 2 || !column) return {};
  const Operand columns = reshape(at(y), Dims{rows_, row_shape(y)[0]});
  const Operand left = row_shape(x).size() == 2 ? emit<"permute">({at(x)}, {{"dims", Ints{2, 1}}}) : at(x);
  return reshape(emit<"matmul">({columns, left}), with_rows(node.types[0].shape));
}

Operand Lifter::view(const Node& node) {
  if (node.inputs.empty()) return {};
  const Operand& x = node.inputs[0];
  if (node.is<"reshape_to">()) return reshape(at(x), with_rows(node.types[0].shape));
  if (node.is<"broadcast_to">())
    return emit<"broadcast_to">({aligned(x, node.types[0].shape.size())},
                                {{"shape", to_ints(with_rows(node.types[0].shape))}});
  if (node.is<"permute">()) {
    Ints dims{1};
    for (int64_t d : AttrReader(*node.op, node.attrs).dims("dims", row_shape(x).size())) dims.push_back(d + 2);
    return emit<"permute">({at(x)}, {{"dims", dims}});
  }
  return node.is<"slice">() ? slice(node) : Operand();
}

Operand Lifter::slice(const Node& node) {
  Attrs attrs = node.attrs;
  const auto prepend = [&](const char* name, int64_t value) {
    Ints& list = std::get<Ints>(attrs[size_t(node.op->attr_index(name))]);
    list.insert(list.begin(), value);
  };
  prepend("start", 0);
  prepend("length", rows_);
  prepend("step", 1);
  prepend("drop", 0);
  return emit(*node.op, Operands{at(node.inputs[0])}, std::move(attrs));
}

// Picks from a loop-invariant table.
Operand Lifter::pick(const Node& node) {
  const size_t index = node.op->inputs[0].dtypes == kIntegral ? 0 : 1;
  Operands inputs = node.inputs;
  if (!same(inputs[1 - index]) || !rows(inputs[index])) return {};
  if (node.op->attr_index("dim") >= 0 &&
      AttrReader(*node.op, node.attrs).dim("dim", row_shape(inputs[1 - index]).size()) != 0)
    return {};
  for (Operand& operand : inputs) operand = at(operand);
  return reshape(emit(*node.op, inputs, node.attrs), with_rows(node.types[0].shape));
}

Operand Lifter::rowwise(const Node& node) {
  Attrs attrs = node.attrs;
  if (!pg::over_rows(*node.op, row_shape(node.inputs[0]).size(), attrs)) return {};
  return emit(*node.op, Operands{at(node.inputs[0])}, std::move(attrs));
}

}  // namespace pg
