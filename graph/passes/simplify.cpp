// Algebraic simplification: identities that keep dtype, shape and every bit.
//
// Therefore x * 0 stays (NaN, -0). x + 0 is x only for integers (-0 + 0 is 0), but x + -0 and x - 0 are x for all
// dtypes. Products and sums of floats are not reordered. A conversion is removed only if it rounds nothing. Nodes get a
// common form: every fill is `full`, every change of shape `reshape_to`, every change of order `permute`, every
// expansion `broadcast_to`. Operands of pointwise ops lose their expansions, and become numbers if all their elements
// are equal. Kernels that add up may follow the layout of what they read. So copies and expansions move only if that
// layout stays: before pointwise ops, or between dense operands.
#include "graph/passes/simplify.h"

#include <cmath>

#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

constexpr int kMaxDepth = 16;  // of rules whose results are simplified in turn

Operand none() { return {}; }

bool is_zero(const Operand& operand) { return is_number(operand, 0); }

bool keeps_type(const Simplifier& s, const Operand& x, const Node& node) {
  return x.is_node() && s.type(x) == node.types[0];
}

// Returns x if the operand `at` is the neutral element `number` and x already has the type of the result.
Operand other_if(const Simplifier& s, const Node& node, size_t at, double number) {
  const Operand& x = node.inputs[1 - at];
  return is_number(node.inputs[at], number) && keeps_type(s, x, node) ? x : none();
}

bool same_dtype(const Simplifier& s, const Operand& x, const Node& node) {
  return s.type(x).dtype == node.types[0].dtype;
}

// Returns the operand of the `neg` behind an operand if it has the dtype of the node.
Operand negated(const Simplifier& s, const Operand& x, const Node& node) {
  const Node* neg = s.producer<"neg">(x);
  return neg && same_dtype(s, x, node) ? neg->inputs[0] : none();
}

Operand simplify_add(Simplifier& s, const Node& node) {
  const bool floating = is_float(node.types[0].dtype);
  for (size_t at : {1u, 0u}) {
    Operand x = other_if(s, node, at, -0.0);
    if (x.is_none() && !floating) x = other_if(s, node, at, 0);
    if (!x.is_none()) return x;
  }
  for (size_t at : {1u, 0u}) {
    const Operand y = negated(s, node.inputs[at], node);
    const Operand& x = node.inputs[1 - at];
    if (!y.is_none() && x.is_node() && same_dtype(s, x, node)) return s.emit<"sub">({x, y});
  }
  return none();
}

Operand simplify_sub(Simplifier& s, const Node& node) {
  const Operand x = other_if(s, node, 1, 0);
  if (!x.is_none()) return x;
  const Operand y = negated(s, node.inputs[1], node);
  if (!y.is_none() && node.inputs[0].is_node() && same_dtype(s, node.inputs[0], node))
    return s.emit<"add">({node.inputs[0], y});
  return none();
}

Operand simplify_mul(Simplifier& s, const Node& node) {
  for (size_t at : {1u, 0u}) {
    const Operand x = other_if(s, node, at, 1);
    if (!x.is_none()) return x;
    if (is_number(node.inputs[at], -1) && keeps_type(s, node.inputs[1 - at], node) && is_float(node.types[0].dtype))
      return s.emit<"neg">({node.inputs[1 - at]});
  }
  const Operand x = negated(s, node.inputs[0], node), y = negated(s, node.inputs[1], node);
  return x.is_none() || y.is_none() ? none() : s.emit<"mul">({x, y});
}

// Whether all dtypes of floats hold the number and its reciprocal exactly: a power of 2.
bool has_exact_reciprocal(double number) {
  int exponent;
  return std::fabs(std::frexp(number, &exponent)) == 0.5 && exponent > -13 && exponent < 15;
}

Operand simplify_div(Simplifier& s, const Node& node) {
  const Operand same = other_if(s, node, 1, 1);
  if (!same.is_none()) return same;
  const Operand& divisor = node.inputs[1];
  if (divisor.is_number() && has_exact_reciprocal(divisor.number) && keeps_type(s, node.inputs[0], node) &&
      is_float(node.types[0].dtype))
    return s.emit<"mul">({node.inputs[0], Operand::immediate(1 / divisor.number)});
  const Operand x = negated(s, node.inputs[0], node), y = negated(s, node.inputs[1], node);
  return x.is_none() || y.is_none() ? none() : s.emit<"div">({x, y});
}

Operand simplify_pow(Simplifier& s, const Node& node) {
  const Operand same = other_if(s, node, 1, 1);
  if (!same.is_none()) return same;
  const Operand& x = node.inputs[0];
  const bool square = is_number(node.inputs[1], 2) && keeps_type(s, x, node) && is_float(node.types[0].dtype);
  return square ? s.emit<"square">({x}) : none();
}

// neg(neg(x)) and, for bool, logical_not(logical_not(x)).
Operand simplify_involution(Simplifier& s, const Node& node) {
  const Node* inner = s.producer(node.inputs[0], *node.op);
  return inner && keeps_type(s, inner->inputs[0], node) ? inner->inputs[0] : none();
}

// relu(relu(x)), abs(abs(x)), floor(floor(x)).
Operand simplify_idempotent(Simplifier& s, const Node& node) {
  return s.producer(node.inputs[0], *node.op) && keeps_type(s, node.inputs[0], node) ? node.inputs[0] : none();
}

Operand simplify_relu_grad(Simplifier& s, const Node& node) {
  const Operand &dy = node.inputs[0], &y = node.inputs[1];
  if (is_zero(dy) && y.is_node() && s.type(y).shape == node.types[0].shape) return s.full(node.types[0], 0);
  const Node* inner = s.producer<"relu_grad">(dy);
  return inner && inner->inputs[1] == y && keeps_type(s, dy, node) ? dy : none();
}

Operand simplify_where(Simplifier& s, const Node& node) {
  const Operand condition = node.inputs[0], x = node.inputs[1], y = node.inputs[2];
  if (x == y && keeps_type(s, x, node)) return x;
  if (const auto known = number_everywhere(s, condition)) {
    const Operand& chosen = *known ? x : y;
    if (keeps_type(s, chosen, node)) return chosen;
    if (chosen.is_number()) {
      const auto number = chosen.number;
      return s.full(node.types[0], number);
    }
  }
  const Node* inverse = s.producer<"logical_not">(condition);
  if (!inverse || s.type(inverse->inputs[0]).dtype != DType::kBool) return none();
  return s.emit<"where">({inverse->inputs[0], y, x});
}

// Whether dtype b represents every value of dtype a exactly.
bool holds_all(DType a, DType b) {
  if (a == b || a == DType::kBool) return true;
  if (is_float(a)) return is_float(b) && promote(a, b) == b;
  if (is_float(b)) {
    const int bits = b == DType::kFloat16 ? 11 : b == DType::kBFloat16 ? 8 : b == DType::kFloat32 ? 24 : 53;
    return size_of(a) * 8 - (a == DType::kUInt8 ? 0 : 1) <= bits;
  }
  return promote(a, b) == b && !(a == DType::kUInt8 && b == DType::kInt8);
}

// to(to(x)) is one conversion if the first changes no value and the second treats both source dtypes alike (integers
// wrap where floats saturate).
Operand simplify_to(Simplifier& s, const Node& node) {
  const Node* first = s.producer<"to">(node.inputs[0]);
  if (!first) return none();
  const Operand x = first->inputs[0];
  const Type &a = s.type(x), &b = s.type(node.inputs[0]), &c = node.types[0];
  if (!(a.device == c.device) || !(b.device == c.device) || !holds_all(a.dtype, b.dtype)) return none();
  const bool alike = is_float(a.dtype) == is_float(b.dtype) || is_float(c.dtype) || c.dtype == DType::kBool ||
                     holds_all(a.dtype, c.dtype);
  if (!alike) return none();
  return a == c ? x : s.emit<"to">({x}, {{"dtype", c.dtype}});
}

Operand simplify_fill(Simplifier& s, const Node& node) {
  return s.full(node.types[0], node.op->fill(AttrReader(*node.op, node.attrs)));
}

// A sum of zeros is 0.
Operand simplify_sum(Simplifier& s, const Node& node) {
  const auto number = number_everywhere(s, node.inputs[0]);
  return number && same_bits(*number, 0) ? s.full(node.types[0], 0) : none();
}

// A pointwise op on operands that are each one number everywhere is one number everywhere.
Operand simplify_known(Simplifier& s, const Node& node) {
  if (!host_reads(node.types[0].device) || !is_pure(node)) return none();
  Node small = node;
  small.types.clear();
  SmallVector<Value, 4> values;
  bool any = false;
  for (const Operand& operand : node.inputs) {
    if (operand.is_node()) {
      const auto number = number_everywhere(s, operand);
      if (!number) return none();
      values.push_back(make_scalar(*number, s.type(operand).dtype));
      any = true;
    } else if (operand.is_number()) {
      values.emplace_back(operand.number);
    } else {
      values.emplace_back();
    }
  }
  if (!any) return none();
  const auto result = evaluate(small, values);
  if (!result || (*result)[0].numel() != 1 || (*result)[0].dtype() != node.types[0].dtype) return none();
  const double number = item((*result)[0]);
  if (!same_bits(item(make_scalar(number, node.types[0].dtype)), number)) return none();
  return s.full(node.types[0], number);
}

// Returns the operand before an expansion or before leading dims of size 1. Pointwise ops may read it directly.
Operand unexpanded(const Simplifier& s, const Operand& x) {
  if (const Node* node = s.producer<"broadcast_to">(x)) return node->inputs[0];
  const Node* node = s.producer<"reshape_to">(x);
  if (!node) return x;
  const Dims &from = s.type(node->inputs[0]).shape, &to = node->types[0].shape;
  const int extra = to.size() - from.size();
  if (extra <= 0) return x;
  for (int d = 0; d < to.size(); ++d)
    if (to[d] != (d < extra ? 1 : from[d - extra])) return x;
  return node->inputs[0];
}

// Whether the op returns the same types on other operands, and computes in the same dtype.
bool fits(const Simplifier& s, const Node& node, std::span<const Operand> inputs) {
  bool any = false;
  for (const Operand& operand : inputs) any |= operand.is_node();
  if (!any) return false;
  const auto before = typed_values(s.graph(), node.inputs), after = typed_values(s.graph(), inputs);
  SmallVector<Type, 2> types;
  try {
    infer_types(*node.op, after, node.attrs, types);
    if (!(types[0] == node.types[0])) return false;
    return !node.op->has(kPointwise) ||
           pointwise_compute_dtype(*node.op, before) == pointwise_compute_dtype(*node.op, after);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool is_number(const Operand& operand, double number) {
  return operand.is_number() && same_bits(operand.number, number);
}

std::optional<double> number_everywhere(const Simplifier& s, const Operand& operand) {
  if (!operand.is_node()) return std::nullopt;
  const Node& node = s.graph().node(operand);
  const DType dtype = node.types[size_t(operand.output)].dtype;
  double number;
  if (const auto given = filled_with(node)) {
    number = item(make_scalar(*given, dtype));
  } else if (node.kind == NodeKind::kConstant && host_reads(node.types[0].device) && numel(node.types[0].shape) == 1) {
    number = item(node.constant);
  } else {
    return std::nullopt;
  }
  if (dtype == DType::kInt64 && std::fabs(number) > 9007199254740992.0) return std::nullopt;  // 2^53
  return number;
}

const Node* Simplifier::producer(const Operand& operand, const OpDef& op) const {
  if (!operand.is_node()) return nullptr;
  const Node& node = graph_.node(operand);
  return node.kind == NodeKind::kOp && node.op == &op ? &node : nullptr;
}

bool Simplifier::is_dense(const Operand& operand) const {
  const Node& node = graph_.node(operand);
  if (node.kind != NodeKind::kOp || !node.op->view || node.is<"contiguous">()) return true;
  return node.is<"reshape_to">() && is_dense(node.inputs[0]);
}

Operand Simplifier::full(const Type& type, double value) {
  return emit<"full">({}, {{"shape", Ints(type.shape.begin(), type.shape.end())},
                           {"value", value},
                           {"dtype", type.dtype},
                           {"device", type.device}});
}

Operand Simplifier::reshape(const Operand& x, const Dims& shape) {
  if (type(x).shape == shape) return x;
  return emit<"reshape_to">({x}, {{"shape", Ints(shape.begin(), shape.end())}});
}

// f(expand(x)) is expand(f(x)).
Operand expand_after(Simplifier& s, const Node& node) {
  if (!s.read_elementwise) return {};
  Operands inputs = node.inputs;
  bool any = false;
  for (Operand& operand : inputs) {
    const Node* expanded = s.producer<"broadcast_to">(operand);
    if (expanded) operand = expanded->inputs[0];
    any |= expanded != nullptr;
  }
  if (!any) return {};
  const Node inner = make_node(s.graph(), *node.op, inputs, node.attrs, s.line);
  if (inner.types[0].dtype != node.types[0].dtype || numel(inner.types[0].shape) >= numel(node.types[0].shape))
    return {};
  const Dims& shape = node.types[0].shape;
  return s.emit<"broadcast_to">({s.simplified(inner)}, {{"shape", Ints(shape.begin(), shape.end())}});
}

// Removes expansions that a pointwise op does by itself. Replaces tensors with one value everywhere by numbers.
Operand simplify_any_pointwise(Simplifier& s, const Node& node) {
  const Operand known = simplify_known(s, node);
  if (!known.is_none()) return known;
  Operands inputs = node.inputs;
  bool changed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand before = inputs[i];
    if (!before.is_node()) continue;
    const auto number = node.op->inputs[i].dtypes == kBoolOnly ? std::nullopt : number_everywhere(s, before);
    for (const Operand& candidate : {number ? Operand::immediate(*number) : before, unexpanded(s, before)}) {
      if (candidate == before) continue;
      inputs[i] = candidate;
      if (fits(s, node, inputs)) break;
      inputs[i] = before;
    }
    changed |= !(inputs[i] == before);
  }
  if (!changed) return expand_after(s, node);
  Node better = node;
  better.inputs = inputs;
  return s.simplified(std::move(better));
}

std::span<const SimplifyRow> arithmetic_rules() {
  static constexpr SimplifyRow kRows[] = {
      {one_of<"add">, simplify_add},
      {one_of<"sub">, simplify_sub},
      {one_of<"mul">, simplify_mul},
      {one_of<"div">, simplify_div},
      {one_of<"pow">, simplify_pow},
      {one_of<"relu_grad">, simplify_relu_grad},
      {one_of<"where">, simplify_where},
      {one_of<"to">, simplify_to},
      {one_of<"sum", "sum_to">, simplify_sum},
      {any_with<kInvolution>, simplify_involution},
      {any_with<kIdempotent>, simplify_idempotent},
      {[](const OpDef& op) { return op.fill != nullptr; }, simplify_fill},
      {any_with<kPointwise>, simplify_any_pointwise},
  };
  return kRows;
}

namespace {

// The rules of each op, by the op's id.
const std::vector<std::vector<SimplifyRule>>& rules_by_id() {
  static const auto* table = [] {
    auto* rules = new std::vector<std::vector<SimplifyRule>>(registry().ops().size());
    for (const OpDef* op : registry().ops())
      for (const auto& rows : {arithmetic_rules(), view_rules()})
        for (const SimplifyRow& row : rows)
          if (row.applies(*op)) (*rules)[size_t(op->id)].push_back(row.rule);
    return rules;
  }();
  return *table;
}

}  // namespace

Operand Simplifier::simplified(Node node) {
  if (depth_ < kMaxDepth && size_t(node.op->id) < rules_by_id().size() && node.types.size() == 1) {
    ++depth_;
    for (const SimplifyRule rule : rules_by_id()[size_t(node.op->id)]) {
      const Operand by = rule(*this, node);
      if (by.is_none()) continue;
      --depth_;
      return by;
    }
    --depth_;
  }
  graph_.nodes.push_back(std::move(node));
  return Operand::of(graph_.nodes.size() - 1);
}

namespace {

// For each node, whether only pointwise ops read it.
std::vector<char> read_elementwise(const Graph& graph) {
  std::vector<char> only(graph.nodes.size(), true);
  for (const Node& node : graph.nodes)
    for (const Operand& operand : node.inputs)
      if (operand.is_node() && !(node.kind == NodeKind::kOp && node.op->has(kPointwise)))
        only[size_t(operand.node)] = false;
  for (const Operand& output : graph.outputs) only[size_t(output.node)] = false;
  return only;
}

}  // namespace

Graph simplify(Graph graph) {
  const std::vector<char> elementwise = read_elementwise(graph);
  Rewrite rewrite(std::move(graph));
  Simplifier simplifier(rewrite.graph());
  for (size_t i = 0; i < rewrite.size(); ++i) {
    Node node = rewrite.take(i);
    if (node.kind != NodeKind::kOp || node.types.size() != 1 ||
        (node.op->traits & (kEffect | kDynamicShape | kBodies))) {
      rewrite.keep(i, rewrite.append(std::move(node)));
      continue;
    }
    simplifier.line = node.line;
    simplifier.read_elementwise = elementwise[i];
    rewrite.replace(i, 0, simplifier.simplified(std::move(node)));
  }
  return rewrite.finish();
}

}  // namespace pg
