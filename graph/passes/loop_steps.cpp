// Steps: what can be known of a loop beforehand. A conditional loop that compares a counter with a number takes so many steps,
// and that is its limit where it has none; a counter is the number of the step and some constant; a row that such a counter
// picks is a slice, and the counters of all steps are a range. So a while_loop over the rows of a tensor becomes what a
// foreach is.
//
// Counters are 0-dim int64 that start from a known number, and grow by one known number in each step. All bits stay.
#include <cmath>
#include <cstring>

#include "graph/passes/loop.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

constexpr int64_t kLargest = int64_t(1) << 40;  // of what is counted with

bool is_counter(const Type& type) { return type.dtype == DType::kInt64 && numel(type.shape) == 1 && type.device.is_cpu(); }

// a * index + b, where index is the number of the step.
struct Affine {
  int64_t a = 0, b = 0;
  bool operator==(const Affine&) const = default;
};

bool small(const Affine& v) { return std::abs(v.a) < kLargest && std::abs(v.b) < kLargest; }

std::optional<int64_t> whole(double v) {
  if (v != std::floor(v) || std::fabs(v) >= double(kLargest)) return std::nullopt;
  return int64_t(v);
}

// The one number that a node holds.
std::optional<int64_t> known(const Graph& graph, const Operand& operand) {
  if (operand.is_number()) return whole(operand.number);
  if (!operand.is_node()) return std::nullopt;
  const Node& node = graph.node(operand);
  if (numel(node.types[size_t(operand.output)].shape) != 1) return std::nullopt;
  if (node.is("full")) return whole(std::get<double>(node.attrs[size_t(node.op->attr_index("value"))]));
  if (node.is("reshape_to")) return known(graph, node.inputs[0]);
  if (node.kind != NodeKind::kConstant || !node.types[0].device.is_cpu()) return std::nullopt;
  return whole(item(node.constant));
}

// Where a vector counts up by one: its first element.
std::optional<int64_t> counting_from(const Node& node) {
  if (node.kind != NodeKind::kConstant && !node.is("range")) return std::nullopt;
  const Type& type = node.types[0];
  if (type.dtype != DType::kInt64 || type.shape.size() != 1 || type.shape[0] == 0 || !type.device.is_cpu()) return std::nullopt;
  if (node.is("range")) {
    const AttrReader c(*node.op, node.attrs);
    return c.attr<double>("step") == 1 ? whole(c.attr<double>("start")) : std::nullopt;
  }
  if (!node.constant.array().contiguous) return std::nullopt;
  const char* data = static_cast<const char*>(node.constant.array().data());
  int64_t first = 0;
  for (int64_t k = 0; k < type.shape[0]; ++k) {
    int64_t value;
    std::memcpy(&value, data + k * int64_t(sizeof value), sizeof value);
    if (k == 0) first = value;
    if (std::abs(value) >= kLargest || value != first + k) return std::nullopt;
  }
  return first;
}

// What a loop's body counts.
class Counters {
 public:
  Counters(const Graph& outer, const LoopEdit& loop) : outer_(outer), loop_(loop), affine_(loop.body.nodes.size()) {
    find_counters();
    find_values();
  }

  std::optional<Affine> value_of(const Operand& operand) const {
    if (operand.is_node()) return operand.output == 0 ? affine_[size_t(operand.node)] : std::nullopt;
    if (!operand.is_number()) return std::nullopt;
    const auto number = whole(operand.number);
    return number ? std::optional(Affine{0, *number}) : std::nullopt;
  }
  std::optional<Affine> value_of(int32_t node) const { return affine_[size_t(node)]; }
  void set(int32_t node, const Affine& value) { affine_[size_t(node)] = value; }

  // How many steps a conditional loop takes at most, as its flag says: the first is known, and that of step t to be true for t
  // up to some number.
  std::optional<int64_t> steps() const {
    const LoopForm& form = loop_.form();
    if (!form.conditional || form.counted || form.reverse) return std::nullopt;
    const auto first = known(outer_, loop_.flag);
    if (!first || *first == 0) return first;
    const auto more = true_until(body().node(loop_.next_flag));
    return more ? std::optional(1 + *more) : std::nullopt;
  }

 private:
  const Graph& body() const { return loop_.body; }

  void find_counters() {
    affine_[size_t(body().inputs[0])] = Affine{1, 0};
    if (loop_.form().reverse) return;
    for (const LoopEdit::Carry& carry : loop_.carries) {
      const auto first = known(outer_, carry.from);
      const auto by = growth(carry);
      if (!first || !by || !is_counter(body().nodes[size_t(carry.input)].types[0])) continue;
      const Affine value{*by, *first - *by};
      if (small(value)) affine_[size_t(carry.input)] = value;
    }
  }

  std::optional<int64_t> growth(const LoopEdit::Carry& carry) const {
    const Node& add = body().node(carry.next);
    if (!add.is("add")) return std::nullopt;
    for (size_t k : {0u, 1u})
      if (add.inputs[k] == Operand::of(size_t(carry.input))) return known(body(), add.inputs[1 - k]);
    return std::nullopt;
  }

  void find_values() {
    for (size_t i = 0; i < affine_.size(); ++i) {
      const Node& node = body().nodes[i];
      if (affine_[i] || node.types.size() != 1 || !is_counter(node.types[0])) continue;
      if (const auto number = known(body(), Operand::of(i))) affine_[i] = Affine{0, *number};
      else if (node.kind == NodeKind::kOp) affine_[i] = value_of(node);
      if (affine_[i] && !small(*affine_[i])) affine_[i].reset();
    }
  }

  std::optional<Affine> value_of(const Node& node) const {
    if (node.is("reshape_to")) return value_of(node.inputs[0]);
    const bool add = node.is("add"), sub = node.is("sub");
    if (!add && !sub) return std::nullopt;
    const auto x = value_of(node.inputs[0]), y = value_of(node.inputs[1]);
    if (!x || !y) return std::nullopt;
    return add ? Affine{x->a + y->a, x->b + y->b} : Affine{x->a - y->a, x->b - y->b};
  }

  std::optional<int64_t> true_until(const Node& node) const {
    const bool le = node.is("le"), lt = node.is("lt");
    if (!le && !lt) return std::nullopt;
    const auto x = value_of(node.inputs[0]), n = value_of(node.inputs[1]);
    if (!x || !n || x->a <= 0 || n->a != 0) return std::nullopt;
    const int64_t room = n->b - x->b - (lt ? 1 : 0);  // a t <= room
    return room < x->a ? 0 : room / x->a;
  }

  const Graph& outer_;
  const LoopEdit& loop_;
  std::vector<std::optional<Affine>> affine_;  // of the body's nodes with one output
};

// Gives loops without a limit, of which the steps are known, one; and with them the loops that read the rows they stack.
class Limits {
 public:
  explicit Limits(Graph& graph) : graph_(graph), limits_(graph.nodes.size(), LoopForm::kNoLimit) {}

  void give() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (is_unlimited(i)) limits_[i] = find(i);
    for (bool again = true; again;) {  // who has readers that cannot follow keeps what there is
      again = false;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        for (const Operand& operand : graph_.nodes[i].inputs)
          if (operand.is_node() && !follows(i, operand)) again |= drop(size_t(operand.node)) | drop(i);
      }
      for (const Operand& output : graph_.outputs)
        if (is_stack(output)) again |= drop(size_t(output.node));
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (limits_[i] != LoopForm::kNoLimit) set(graph_.nodes[i], limits_[i]);
  }

 private:
  bool is_unlimited(size_t i) const {
    return graph_.nodes[i].kind == NodeKind::kLoop && graph_.nodes[i].loop.limit == LoopForm::kNoLimit;
  }
  bool is_stack(const Operand& operand) const {
    return is_unlimited(size_t(operand.node)) && operand.output > graph_.node(operand).loop.carries;
  }

  // From the slices, the count or the condition.
  int64_t find(size_t i) const {
    const Node& node = graph_.nodes[i];
    const LoopEdit loop(node);
    for (const LoopEdit::Part& slice : loop.slices)
      if (!is_stack(slice.from) || limits_[size_t(slice.from.node)] != limits_[size_t(loop.slices[0].from.node)]) return LoopForm::kNoLimit;
    if (!loop.slices.empty()) return limits_[size_t(loop.slices[0].from.node)];
    const auto steps = node.loop.counted ? known(graph_, loop.count) : Counters(graph_, loop).steps();
    return steps && *steps >= 0 ? *steps : LoopForm::kNoLimit;
  }

  bool follows(size_t i, const Operand& operand) const {
    return !is_stack(operand) || (is_unlimited(i) && limits_[i] == limits_[size_t(operand.node)]);
  }

  bool drop(size_t i) {
    const bool had = limits_[i] != LoopForm::kNoLimit;
    limits_[i] = LoopForm::kNoLimit;
    return had;
  }

  static void set(Node& node, int64_t limit) {
    node.loop.limit = limit;
    for (size_t k = size_t(node.loop.carries) + 1; k < node.types.size(); ++k) node.types[k].shape[0] = limit;
  }

  Graph& graph_;
  std::vector<int64_t> limits_;
};

class Steps {
 public:
  Steps(Rewrite& rewrite, LoopEdit& loop) : rewrite_(rewrite), loop_(loop), counters_(rewrite.graph(), loop) {}

  // Whether anything was found out; then the loop is another.
  bool run() {
    bool any = know_steps();
    any |= know_count();
    any |= drop_counters();
    any |= read_ranges();
    any |= pick_rows();
    any |= give_ranges();
    return any;
  }

  // The loop, and what stands after it.
  void write(size_t i) {
    const size_t at = loop_.write(rewrite_, i);
    for (const auto& [outputs, value] : finals_) {
      const Operand steps = Operand::of(at, 0);
      const Operand by = loop_.runs_all() ? fill(loop_.form().limit + value.b) : emit("add", {steps, Operand::immediate(double(value.b))});
      for (int32_t output : outputs) rewrite_.replace(i, size_t(output), by);
    }
    for (const auto& [stack, first] : ranges_) {
      const double last = double(first + loop_.form().limit - 1);
      const Operand by = emit("range", {}, {{"start", double(first)}, {"stop", last}, {"dtype", DType::kInt64}});
      for (int32_t output : stack.outputs) rewrite_.replace(i, size_t(output), by);
    }
  }

 private:
  const Graph& body() const { return loop_.body; }
  const Graph& outer() const { return rewrite_.graph(); }
  Operand index() const { return Operand::of(size_t(loop_.body.inputs[0])); }

  Operand emit(const char* op, std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    const OpDef& def = registry().require(op);
    return Operand::of(rewrite_.append(make_node(outer(), def, {inputs.begin(), inputs.size()}, make_attrs(def, attrs), -1)));
  }
  Operand fill(int64_t value) { return emit("full", {}, {{"shape", Ints{}}, {"value", double(value)}, {"dtype", DType::kInt64}}); }

  // A counter that grows by one is the index, or the index and a number.
  bool drop_counters() {
    return std::erase_if(loop_.carries, [&](const LoopEdit::Carry& carry) {
             const auto value = counters_.value_of(carry.input);
             if (!value || value->a != 1 || carry.input < index().node) return false;
             if (body().nodes[size_t(carry.input)].types[0].shape.size() != 0) return false;
             be_counter(carry.input, value->b);
             finals_.emplace_back(carry.outputs, Affine{1, value->b + 1});
             return true;
           }) > 0;
  }

  // Node `at` of the body becomes index + b.
  void be_counter(int32_t at, int64_t b) {
    if (b == 0) return loop_.redirect(Operand::of(size_t(at)), index());
    const OpDef& op = registry().require("add");
    const Operand inputs[] = {index(), Operand::immediate(double(b))};
    loop_.body.nodes[size_t(at)] = make_node(loop_.body, op, inputs, make_attrs(op), -1);
  }

  // How many steps --------------------------------------------------------------------------------------------------------------

  bool know_steps() {
    LoopForm& form = loop_.form();
    const auto steps = form.limit == LoopForm::kNoLimit ? std::nullopt : counters_.steps();
    if (!steps) return false;
    form.conditional = false;
    loop_.flag = loop_.next_flag = {};
    if (*steps < form.limit) {
      form.counted = true;
      loop_.count = fill(*steps);
    }
    return true;
  }

  bool know_count() {
    LoopForm& form = loop_.form();
    if (!form.counted || form.conditional) return false;
    const auto steps = known(outer(), loop_.count);
    if (!steps || *steps < 0 || form.limit == LoopForm::kNoLimit || *steps < form.limit) return false;
    form.counted = false;
    loop_.count = {};
    return true;
  }

  // Rows ------------------------------------------------------------------------------------------------------------------------

  // Slices of a range.
  bool read_ranges() {
    return std::erase_if(loop_.slices, [&](const LoopEdit::Part& slice) {
             const auto first = counting_from(outer().node(slice.from));
             if (!first || slice.input < index().node) return false;
             counters_.set(slice.input, Affine{1, *first - 1});
             be_counter(slice.input, *first - 1);
             return true;
           }) > 0;
  }

  // Rows of captures that a counter picks.
  bool pick_rows() {
    bool any = false;
    const int64_t limit = loop_.form().limit;
    for (size_t i = 0; limit > 0 && i < body().nodes.size(); ++i) {
      const Node& node = body().nodes[i];
      if (!node.is("index_select") || std::get<int64_t>(node.attrs[size_t(node.op->attr_index("index_base"))]) != 1) continue;
      const auto at = counters_.value_of(node.inputs[1]);
      const Dims& whole = body().type(node.inputs[0]).shape;
      if (!at || at->a != 1 || whole.size() == 0 || AttrReader(*node.op, node.attrs).dim("dim", whole.size()) != 0) continue;
      if (at->b < 0 || at->b + limit > whole[0]) continue;
      for (const LoopEdit::Part& capture : loop_.captures) {
        if (!(node.inputs[0] == Operand::of(size_t(capture.input)))) continue;
        const Operand from = capture.from;
        loop_.make_slice(int32_t(i), rows_of(from, whole[0], at->b, stack_type(node.types[0], limit)));
        any = true;
        break;
      }
    }
    return any;
  }

  Operand rows_of(Operand from, int64_t rows, int64_t first, const Type& type) {
    if (type.shape[0] != rows) from = emit("narrow", {from}, {{"dim", int64_t(1)}, {"start", first + 1}, {"length", type.shape[0]}});
    if (outer().type(from).shape == type.shape) return from;
    return emit("reshape_to", {from}, {{"shape", Ints(type.shape.begin(), type.shape.end())}});
  }

  // Stacks of a counter.
  bool give_ranges() {
    if (!loop_.surely_runs()) return false;
    return std::erase_if(loop_.stacks, [&](const LoopEdit::Stack& stack) {
             const auto value = counters_.value_of(stack.row);
             if (!value || value->a != 1 || stack.type.shape.size() != 1) return false;
             ranges_.emplace_back(stack, value->b + 1);
             return true;
           }) > 0;
  }

  Rewrite& rewrite_;
  LoopEdit& loop_;
  Counters counters_;
  std::vector<std::pair<std::vector<int32_t>, Affine>> finals_;
  std::vector<std::pair<LoopEdit::Stack, int64_t>> ranges_;
};

}  // namespace

Graph count_steps(Graph graph) {
  Limits(graph).give();
  Rewrite rewrite(std::move(graph));
  for (size_t i = 0; i < rewrite.size(); ++i) {
    Node node = rewrite.take(i);
    if (node.kind == NodeKind::kLoop) {
      LoopEdit loop(node);
      Steps steps(rewrite, loop);
      if (steps.run()) {
        steps.write(i);
        continue;
      }
    }
    rewrite.keep(i, rewrite.append(std::move(node)));
  }
  return rewrite.finish();
}

}  // namespace pg
