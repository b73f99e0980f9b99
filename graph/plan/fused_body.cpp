#include "graph/plan/fused_body.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "graph/plan/fused.h"
#include "tensor/call.h"
#include "tensor/context.h"

namespace pg {
namespace {

constexpr int64_t kExactInteger = int64_t(1) << 53;  // integers up to this are exact in a double

class Translator {
 public:
  explicit Translator(const Graph& body) : g_(body) {}

  TranslatedBody run() {
    add_inputs();
    find_space();
    for (size_t i = 0; i < g_.nodes.size(); ++i) add_node(i);
    add_outputs();
    return std::move(out_);
  }

 private:
  TileBody& tiles() { return out_.tiles; }

  [[noreturn]] void refuse(size_t i, const std::string& why) const {
    const Node& n = g_.nodes[i];
    throw Error(fmt::format("fused: node {} ({}): {}", i, n.op ? n.op->name : "?", why));
  }

  // --- Inputs and the index space ---

  int32_t add_tile_input(const Type& type) {
    tiles().inputs.push_back({type.dtype, type.shape});
    TileValue v;
    v.index = int32_t(tiles().inputs.size()) - 1;
    v.dtype = type.dtype;
    const int32_t raw = add(v);
    return is_half(type.dtype) ? convert(raw, DType::kFloat32, DType::kFloat32) : raw;
  }

  void add_inputs() {
    values_.resize(g_.nodes.size(), -1);
    for (int32_t i : g_.inputs) values_[size_t(i)] = add_tile_input(g_.nodes[size_t(i)].types[0]);
  }

  bool reduces(const Node& n) const { return n.kind == NodeKind::kOp && !fusable(n) && !is_join(n); }

  void find_space() {
    Dims space;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      if (reduces(n) || is_join(n)) continue;
      Dims joined;
      if (n.types.size() != 1 || !broadcast(space, n.types[0].shape, &joined))
        refuse(i, "its shape does not broadcast with the others");
      space = joined;
    }
    tiles().space = space;
  }

  // --- Nodes ---

  int32_t add(const TileValue& v) {
    tiles().values.push_back(v);
    return int32_t(tiles().values.size()) - 1;
  }

  const TileValue& tile_value(int32_t v) { return tiles().values[size_t(v)]; }

  // Converts the value to `dtype`, rounded to `stored` if that is a half.
  int32_t convert(int32_t from, DType dtype, DType stored) {
    const bool rounds = is_half(stored);
    if (tile_value(from).dtype == dtype && !rounds) return from;
    const auto key = std::make_tuple(from, dtype, stored);
    if (const auto known = converted_.find(key); known != converted_.end()) return known->second;
    TileValue v;
    v.kind = TileValue::Kind::kConvert;
    v.dtype = dtype;
    v.rounded = rounds ? stored : dtype;
    v.count = 1;
    v.operands[0] = from;
    return converted_[key] = add(v);
  }

  int32_t constant(DType dtype, double number) {
    TileValue v;
    v.kind = TileValue::Kind::kConstant;
    v.dtype = dtype;
    v.number = number;
    return add(v);
  }

  void add_node(size_t i) {
    const Node& n = g_.nodes[i];
    switch (n.kind) {
      case NodeKind::kInput:
        return;
      case NodeKind::kConstant:
        return add_constant(i);
      case NodeKind::kOp:
        break;
      default:
        refuse(i, "only inputs, constants and ops may be in a body");
    }
    if (is_join(n)) return;  // add_outputs
    if (reduces(n)) return add_reduction(i);
    if (is_alias(n))
      values_[i] = value_of(i, 0);
    else if (n.is<"to">())
      values_[i] = add_conversion(i);
    else if (n.is<"clamp">())
      values_[i] = add_clamp(i);
    else
      values_[i] = add_pointwise(i);
  }

  void add_constant(size_t i) {
    const Node& n = g_.nodes[i];
    const Value& v = n.constant;
    if (numel(n.types[0].shape) == 1 && v.is_array()) {
      const double number = item(v);
      const bool exact = v.dtype() != DType::kInt64 || std::fabs(number) < double(kExactInteger);
      if (exact && !std::isnan(number)) {
        values_[i] = constant(work_dtype(v.dtype()), number);
        return;
      }
    }
    if (!v.is_array()) refuse(i, "a constant without an array");
    out_.constants.push_back(v);
    values_[i] = add_tile_input(n.types[0]);
  }

  int32_t value_of(size_t i, size_t k) const {
    const Operand& o = g_.nodes[i].inputs[k];
    if (!o.is_node() || o.node >= int32_t(i) || values_[size_t(o.node)] < 0)
      refuse(i, fmt::format("operand {} is not the result of an earlier pointwise node", k + 1));
    return values_[size_t(o.node)];
  }

  int32_t add_conversion(size_t i) {
    const DType from = g_.type(g_.nodes[i].inputs[0]).dtype, to = g_.nodes[i].types[0].dtype;
    const int32_t v = value_of(i, 0);
    if (from == to) return v;
    return convert(v, work_dtype(to), to);
  }

  // Returns the dtype that a pointwise node computes in.
  DType compute_of(size_t i) const {
    const Node& n = g_.nodes[i];
    SmallVector<Value, 3> inputs;
    for (const Operand& o : n.inputs) {
      if (o.is_node())
        inputs.push_back(Value(Array::make(g_.type(o))));
      else if (o.is_number())
        inputs.push_back(Value(o.number));
      else
        inputs.emplace_back();
    }
    return pointwise_compute_dtype(*n.op, inputs);
  }

  // Returns operand k of a node that computes in `compute`.
  int32_t operand(size_t i, size_t k, DType compute) {
    const Node& n = g_.nodes[i];
    const bool condition = n.op->inputs[k].dtypes == kBoolOnly;
    const Operand& o = n.inputs[k];
    if (o.is_none()) refuse(i, fmt::format("operand {} is missing", k + 1));
    if (!o.is_number()) return convert(value_of(i, k), condition ? DType::kBool : work_dtype(compute), DType::kBool);
    if (condition) return constant(DType::kBool, o.number != 0);
    int64_t storage = 0;
    const DType dtype = number_dtype(*n.op, compute);
    store_number(dtype, &storage, o.number);
    return constant(work_dtype(compute), load_number(dtype, &storage));
  }

  TileValue op_value(size_t i, const OpDef& op, DType compute) const {
    TileValue v;
    v.kind = TileValue::Kind::kOp;
    v.op = &op;
    v.compute = work_dtype(compute);
    if (!tile_computes(op, v.compute)) refuse(i, fmt::format("no kernel for {}", name_of(compute)));
    const bool boolean = g_.nodes[i].op->result == Result::kBool;
    v.dtype = boolean ? DType::kBool : v.compute;
    v.rounded = boolean ? v.dtype : compute;
    return v;
  }

  int32_t add_pointwise(size_t i) {
    const Node& n = g_.nodes[i];
    const DType compute = compute_of(i);
    TileValue v = op_value(i, *n.op, compute);
    if (tile_checks(*n.op)) add_check(i);
    v.count = int8_t(n.inputs.size());
    for (size_t k = 0; k < n.inputs.size(); ++k) v.operands[k] = operand(i, k, compute);
    const Attrs attrs = n.attrs.size() == n.op->attrs.size() ? n.attrs : make_attrs(*n.op);
    if (attrs.size()) tile_params(*n.op, attrs, v.params);
    return add(v);
  }

  // By definition, clamp is the maximum with the lower bound, then the minimum with the upper bound.
  int32_t add_clamp(size_t i) {
    const DType compute = compute_of(i);
    int32_t x = operand(i, 0, compute);
    for (size_t k = 1; k < g_.nodes[i].inputs.size(); ++k) {
      if (g_.nodes[i].inputs[k].is_none()) continue;
      TileValue v = op_value(i, k == 1 ? op_named<"maximum">() : op_named<"minimum">(), compute);
      v.count = 2;
      v.operands[0] = x;
      v.operands[1] = operand(i, k, compute);
      x = add(v);
    }
    return x;
  }

  // --- Checks ---

  void add_check(size_t i) {
    const Node& n = g_.nodes[i];
    const Operand& o = n.inputs[1];
    if (numel(n.types[0].shape) == 0 || !is_integer(n.types[0].dtype)) return;
    DivisorCheck c{n.op, -1, nullptr, {}};
    if (o.is_number()) {
      c.type = Type{compute_of(i), {}, {}};
      if (!is_integer(c.type.dtype) || o.number > 0) return;
    } else {
      c.type = g_.type(o);
      if (is_float(c.type.dtype)) return;
      const auto found = std::find(g_.inputs.begin(), g_.inputs.end(), o.node);
      if (found != g_.inputs.end()) {
        c.input = int32_t(found - g_.inputs.begin());
        out_.checks.push_back(c);
        return;
      }
    }
    c.kernel = divisor_kernel(o, c.type);
    out_.checks.push_back(c);
  }

  // Returns a kernel that computes only the divisor.
  std::shared_ptr<const FusedKernel> divisor_kernel(const Operand& o, const Type& type) const {
    Graph sub = g_;
    sub.outputs = {o};
    if (o.is_number()) {
      sub.nodes.push_back(constant_node(type, make_scalar(o.number, type.dtype)));
      sub.outputs = {Operand::of(sub.nodes.size() - 1)};
    }
    return FusedKernel::compile(without_dead_nodes(sub));
  }

  // --- Outputs ---

  void add_reduction(size_t i) {
    const Node& n = g_.nodes[i];
    if (n.inputs.empty() || !n.inputs[0].is_node()) refuse(i, "must not be in a body");
    const Type& type = g_.type(n.inputs[0]);
    if (!fusable_reduction(n, type)) refuse(i, "neither pointwise nor a reduction of trailing dims");
    TileReduction r;
    r.value = value_of(i, 0);
    if (numel(type.shape) != numel(tiles().space)) refuse(i, "reduces less than the whole space");
    r.op = n.op;
    r.storage = type.dtype;
    r.row = reduced_row(n, type);
    r.dtype = n.types[0].dtype;
    reductions_.emplace(int32_t(i), r);
  }

  void add_outputs() {
    std::vector<int32_t> reduced;
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      const Operand& o = g_.outputs[k];
      if (const auto found = reductions_.find(o.node); found != reductions_.end()) {
        const TileReduction& r = found->second;
        if (!tiles().reductions.empty() && r.row != tiles().reductions[0].row)
          refuse(size_t(o.node), "reduces rows of another length than the reduction before it");
        tiles().reductions.push_back(r);
        reduced.push_back(int32_t(k));
        continue;
      }
      if (is_join(g_.node(o))) {
        add_parts(size_t(o.node), int32_t(k));
        continue;
      }
      const Type& type = g_.type(o);
      const int64_t count = numel(type.shape), size = numel(tiles().space);
      if (count != 1 && count != size) refuse(size_t(o.node), "an output of less than the whole space");
      if (values_[size_t(o.node)] < 0) refuse(size_t(o.node), "is no output of a body");
      tiles().outputs.push_back({values_[size_t(o.node)], type.dtype, count == 1});
      out_.outputs.push_back(int32_t(k));
    }
    if (tiles().reductions.size() > kMaxReductions)
      throw Error(fmt::format("fused: more than {} reductions", kMaxReductions));
    out_.outputs.insert(out_.outputs.end(), reduced.begin(), reduced.end());
    out_.parts.resize(out_.outputs.size());
  }

  // The operands of a join become outputs, each in its part of output k.
  void add_parts(size_t i, int32_t k) {
    const Node& n = g_.nodes[i];
    const Type& whole = n.types[0];
    const Dims strides = contiguous_strides(whole.shape);
    const int d = AttrReader(*n.op, n.attrs).dim("dim", whole.shape.size());
    int64_t at = 0;
    for (size_t operand = 0; operand < n.inputs.size(); ++operand) {
      const int32_t value = value_of(i, operand);
      JoinedPart part{g_.type(n.inputs[operand]), strides, at * strides[d] * size_of(whole.dtype)};
      if (!(part.type.shape == tiles().space) || part.type.dtype != whole.dtype)
        refuse(i, "joins something else than values of the whole space");
      at += n.is<"cat">() ? part.type.shape[d] : 1;
      if (n.is<"stack">()) part.strides.erase(d);
      tiles().outputs.push_back({value, whole.dtype, false});
      out_.outputs.push_back(k);
      out_.parts.resize(out_.outputs.size());
      out_.parts.back() = std::move(part);
    }
  }

  const Graph& g_;
  TranslatedBody out_;
  std::vector<int32_t> values_;  // by node; -1: none
  std::map<std::tuple<int32_t, DType, DType>, int32_t> converted_;
  std::map<int32_t, TileReduction> reductions_;  // by node
};

// Returns a bit mask of the dims that the node reduces.
uint32_t reduced_mask(const Node& n, const Type& type) {
  const int rank = type.shape.size();
  uint32_t mask = 0;
  if (n.is<"sum_to">()) {
    const Dims& out = n.types[0].shape;
    const int lead = rank - out.size();
    for (int d = 0; d < rank; ++d)
      if (d < lead || (out[d - lead] == 1 && type.shape[d] != 1)) mask |= 1u << d;
    return mask;
  }
  const Attrs attrs = n.attrs.size() == n.op->attrs.size() ? n.attrs : make_attrs(*n.op);
  const AttrReader reader(*n.op, attrs);
  if (const auto* one = std::get_if<int64_t>(&reader.raw("dim"))) return 1u << dim_index(n.op->name, "dim", *one, rank);
  for (int64_t d : reader.dims("dim", rank)) mask |= 1u << d;
  return mask;
}

}  // namespace

bool is_join(const Node& node) { return node.is<"cat">() || node.is<"stack">(); }

bool is_alias(const Node& node) { return node.has(kExpand) && node.inputs.size() == 1; }

int64_t reduced_row(const Node& node, const Type& reduced) {
  const uint32_t mask = reduced_mask(node, reduced);
  int64_t row = 1;
  bool kept = false;
  for (int d = reduced.shape.size() - 1; d >= 0; --d) {
    if (reduced.shape[d] == 1) continue;
    if (!(mask >> d & 1))
      kept = true;
    else if (kept)
      return -1;
    else
      row *= reduced.shape[d];
  }
  return row;
}

TranslatedBody translate_body(const Graph& body) { return Translator(body).run(); }

}  // namespace pg
