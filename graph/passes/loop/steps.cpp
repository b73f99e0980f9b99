// Steps: uses what is known about a loop before it runs. A loop with a known number of steps becomes a loop over all
// its rows. Rows that it picks with an induction variable become its slices. So a while_loop over the rows of a tensor
// becomes the same as a foreach.
//
// A counter (induction variable) is the number of the step, a carry that starts from a known integer and grows by a
// known integer in each step, or a sum of these. A conditional loop whose flag compares a counter with a known number,
// and a loop with a known count, have a known number of steps. Such a loop loses its flag and count, and its limit
// becomes that number. Stacked outputs with more rows are padded with zeros after the loop. If the number of steps is
// 0, the results are the operands. Stacked outputs of a loop without a limit, which only slices of loops may read, get
// a type with the known number of rows.
//
// A counter that grows by one is no longer a carry or slice: it is computed from the number of the step, and a stack of
// it is a range. If a step picks a row of a capture with such a counter (index_select along the first dim), the capture
// becomes a slice. This requires that all rows exist: otherwise the step that fails must still fail. A scatter of
// consecutive rows (index_select_backward, as gathering makes it) becomes these rows between zeros. A negative zero
// among them keeps its sign. Everything else keeps every bit.
#include <algorithm>
#include <cmath>

#include "graph/passes/loop/loop.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

// Bounds counters, the numbers they are compared with and numbers of steps, so that their sums fit in int32.
constexpr int64_t kMost = int64_t(1) << 29, kForever = kMost + 1;
// Integers up to this bound, and halves, are exact in float32.
constexpr double kExact = 1 << 22;

bool counts(const Type& type) {
  const bool integer = type.dtype == DType::kInt64 || type.dtype == DType::kInt32;
  return integer && numel(type.shape) == 1 && host_reads(type.device);
}

// The value by * row + from. Rows count from 1.
struct Affine {
  int64_t by = 0, from = 0;
  bool operator==(const Affine&) const = default;
};

bool is_known(const Node& node) {
  return node.kind == NodeKind::kConstant && host_reads(node.types[0].device) && node.constant.array().buffer;
}

// Returns the number that all elements have, if it is known.
std::optional<double> number_of(const Graph& graph, const Operand& operand) {
  if (operand.is_number()) return operand.number;
  if (!operand.is_node()) return std::nullopt;
  const Node& node = graph.node(operand);
  if (is_known(node) && numel(node.types[0].shape) == 1) return item(node.constant);
  return is_float(node.types[0].dtype) ? std::nullopt : filled_with(node);
}

std::optional<int64_t> whole(const std::optional<double>& number) {
  if (!number || *number != std::floor(*number) || std::fabs(*number) > double(kMost)) return std::nullopt;
  return int64_t(*number);
}

// Returns the first of so many elements if each further element is one more than the one before.
std::optional<int64_t> first_of_run(const Graph& graph, const Operand& operand, int64_t elements) {
  const Node& node = graph.node(operand);
  const Type& type = node.types[0];
  if (elements < 1 || numel(type.shape) < elements || (type.dtype != DType::kInt64 && type.dtype != DType::kInt32))
    return std::nullopt;
  if (node.is<"reshape_to">()) return first_of_run(graph, node.inputs[0], elements);
  if (node.is<"range">()) {
    const AttrReader c(*node.op, node.attrs);
    return c.attr<double>("step") == 1 ? whole(c.attr<double>("start")) : std::nullopt;
  }
  if (!is_known(node) || !is_contiguous(type.shape, node.constant.array().strides)) return std::nullopt;
  const char* data = static_cast<const char*>(node.constant.array().data());
  const double first = load_number(type.dtype, data);
  for (int64_t k = 1; k < elements; ++k)
    if (load_number(type.dtype, data + k * size_of(type.dtype)) != first + double(k)) return std::nullopt;
  return whole(first);
}

template <OpName name, OpName mirrored>
bool compares(const Node& node, bool swapped) {
  return swapped ? node.is<mirrored>() : node.is<name>();
}

// Returns the number of steps of a loop whose flag, after each step, compares a counter with a number. `swapped`: the
// number is the left operand.
std::optional<int64_t> steps_while(const Node& compare, bool swapped, Affine counter, double number) {
  if (counter.by < 0) counter = {-counter.by, -counter.from}, number = -number, swapped = !swapped;
  const double reach = (number - double(counter.from)) / double(counter.by);  // the row where both are equal
  if (compares<"le", "ge">(compare, swapped)) return int64_t(std::max(1.0, std::floor(reach) + 1));
  if (compares<"lt", "gt">(compare, swapped)) return int64_t(std::max(1.0, std::ceil(reach)));
  if (compares<"ge", "le">(compare, swapped)) return reach > 1 ? 1 : kForever;
  if (compares<"gt", "lt">(compare, swapped)) return reach >= 1 ? 1 : kForever;
  if (compares<"ne", "ne">(compare, swapped))
    return reach >= 1 && reach == std::floor(reach) ? int64_t(reach) : kForever;
  if (compares<"eq", "eq">(compare, swapped)) return reach == 1 ? 2 : 1;
  return std::nullopt;
}

// Whether the comparison with a counter sees the exact value of the number.
bool compares_exactly(const Graph& graph, const Operand& operand, double number) {
  const bool real = !operand.is_number() && is_float(graph.type(operand).dtype);
  if (std::fabs(number) <= kExact) return !real || size_of(graph.type(operand).dtype) >= 4;
  return std::fabs(number) <= double(kMost) && number == std::floor(number) && !real;
}

// The readers of an output of a node.
struct Readers {
  bool any = false, slices_only = true;
};

class Steps {
 public:
  Steps(Rewrite& rewrite, size_t i, const Node& node, const std::vector<Readers>& read)
      : rewrite_(rewrite),
        at_(i),
        old_types_(node.types),
        read_(read),
        loop_(node),
        body_(loop_.body),
        rows_(loop_form(node).limit) {}

  // Replaces the loop if it can be improved. Returns whether it was.
  bool run() {
    find_counters();
    if (!loop_.runs_all())
      if (const auto steps = steps_taken()) settle(*steps);
    if (loop_.runs_all() && loop_.form().limit == 0) return no_steps();
    changed_ |= pick_rows();
    changed_ |= know_rows();
    changed_ |= know_finals();
    changed_ |= drop_counters();
    if (changed_) write();
    return changed_;
  }

 private:
  const Graph& outside() const { return rewrite_.graph(); }
  Operand index() const { return Operand::of(size_t(body_.inputs[0])); }

  // Counters.

  // Assumes that a carry is a counter until its next value disproves it.
  void find_counters() {
    counters_.resize(loop_.carries.size());
    for (size_t k = 0; k < counters_.size(); ++k) {
      const LoopEdit::Carry& carry = loop_.carries[k];
      const auto first = counts(outside().type(carry.from)) ? whole(number_of(outside(), carry.from)) : std::nullopt;
      const int64_t by = growth(carry);
      if (first && by != 0 && !loop_.form().reverse) counters_[k] = Affine{by, *first - by};
    }
    for (bool again = true; again;) {
      again = false;
      find_values();
      for (size_t k = 0; k < counters_.size(); ++k) {
        if (!counters_[k]) continue;
        const auto next = value(loop_.carries[k].next);
        if (!next || !(*next == Affine{counters_[k]->by, counters_[k]->from + counters_[k]->by}))
          counters_[k].reset(), again = true;
      }
    }
  }

  int64_t growth(const LoopEdit::Carry& carry) const {
    const Node& next = body_.node(carry.next);
    for (const bool second : {false, true})
      if ((next.is<"add">() || (next.is<"sub">() && !second)) &&
          next.inputs[second] == Operand::of(size_t(carry.input)))
        if (const auto by = whole(known(next.inputs[!second]))) return next.is<"sub">() ? -*by : *by;
    return 1;
  }

  // Finds the nodes of the body that are affine in the number of the row.
  void find_values() {
    values_.assign(body_.nodes.size(), std::nullopt);
    values_[size_t(index().node)] = Affine{1, 0};
    for (const LoopEdit::Part& slice : loop_.slices) {
      if (!counts(body_.nodes[size_t(slice.input)].types[0])) continue;
      if (const auto first = first_of_run(outside(), slice.from, rows_))
        values_[size_t(slice.input)] = Affine{1, *first - 1};
    }
    for (size_t k = 0; k < counters_.size(); ++k)
      if (counters_[k]) values_[size_t(loop_.carries[k].input)] = counters_[k];
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const Node& node = body_.nodes[i];
      if (node.kind != NodeKind::kOp || node.types.size() != 1 || !counts(node.types[0])) continue;
      const auto sum = sum_of(node);
      if (sum && std::abs(sum->by) <= kMost && std::abs(sum->from) <= kMost) values_[i] = sum;
    }
  }

  std::optional<Affine> sum_of(const Node& node) const {
    if (node.op->view) return value(node.inputs[0]);
    const int sign = node.is<"add">() ? 1 : node.is<"sub">() ? -1 : 0;
    if (sign == 0) return std::nullopt;
    const auto x = value(node.inputs[0]), y = value(node.inputs[1]);
    if (!x || !y) return std::nullopt;
    return Affine{x->by + sign * y->by, x->from + sign * y->from};
  }

  std::optional<Affine> value(const Operand& operand) const {
    if (operand.is_node() && operand.output == 0 && values_[size_t(operand.node)]) return values_[size_t(operand.node)];
    const auto number = whole(known(operand));
    return number ? std::optional(Affine{0, *number}) : std::nullopt;
  }

  bool is_counter(const Operand& operand) const {
    const auto v = value(operand);
    return v && v->by != 0;
  }

  // Returns the number that an operand of the body has in all steps, if it is known.
  std::optional<double> known(const Operand& operand) const {
    if (operand.is_node() && numel(body_.type(operand).shape) != 1) return std::nullopt;
    for (const LoopEdit::Part& part : loop_.captures)
      if (operand.node == part.input) return number_of(outside(), part.from);
    return number_of(body_, operand);
  }

  // The number of steps.

  std::optional<int64_t> steps_taken() const {
    const LoopForm& form = loop_.form();
    int64_t most = form.limit >= 0 ? form.limit : kForever;
    if (form.counted) {
      const auto count = whole(number_of(outside(), loop_.count));
      if (!count || *count < 0) return std::nullopt;
      most = std::min(most, *count);
    }
    if (form.conditional) {
      const auto steps = steps_until_false();
      if (!steps) return std::nullopt;
      most = std::min(most, *steps);
    }
    if (most > kMost || !has_place(most)) return std::nullopt;
    for (const auto& v : values_)
      if (v && std::abs(v->by) * (most + 1) > 2 * kMost) return std::nullopt;
    return most;
  }

  std::optional<int64_t> steps_until_false() const {
    const auto first = number_of(outside(), loop_.flag);
    if (!first || loop_.form().reverse) return std::nullopt;
    if (*first == 0) return 0;
    Operand at = loop_.next_flag;
    while (is_view(body_.node(at))) at = body_.node(at).inputs[0];
    if (const auto flag = known(at)) return *flag != 0 ? kForever : 1;
    const Node& compare = body_.node(at);
    if (compare.kind != NodeKind::kOp || compare.inputs.size() != 2) return std::nullopt;
    for (const bool swapped : {false, true}) {
      const Operand &counter = compare.inputs[swapped], &other = compare.inputs[!swapped];
      const auto number = known(other);
      if (is_counter(counter) && number && compares_exactly(body_, other, *number))
        return steps_while(compare, swapped, *value(counter), *number);
    }
    return std::nullopt;
  }

  // Whether the slices have so many rows, and whether stacks of unknown length may have so many.
  bool has_place(int64_t steps) const {
    for (const LoopEdit::Part& slice : loop_.slices)
      if (outside().type(slice.from).shape[0] < steps) return false;
    if (rows_ >= 0) return true;
    for (const LoopEdit::Stack& stack : loop_.stacks) {
      const auto only_sliced = [&](int32_t output) { return read_[size_t(output)].slices_only; };
      if (!affordable(row_type(stack.type), steps) ||
          !std::all_of(stack.outputs.begin(), stack.outputs.end(), only_sliced))
        return false;
    }
    return true;
  }

  // Makes every row a step.
  void settle(int64_t steps) {
    LoopForm& form = loop_.form();
    form.counted = form.conditional = false;
    form.limit = steps;
    loop_.count = loop_.flag = loop_.next_flag = {};
    changed_ = settled_ = true;
    if (steps == 0) return;
    for (LoopEdit::Part& slice : loop_.slices) slice.from = first_rows(slice.from, steps);
    if (steps == rows_) return;
    for (LoopEdit::Stack& stack : loop_.stacks) {
      const Type before = stack.type;
      stack.type = stack_type(row_type(before), steps);
      if (rows_ >= 0) padded_.emplace_back(std::move(stack.outputs), before), stack.outputs.clear();
      for (int32_t output : stack.outputs) rewrite_.retype(at_, size_t(output), stack.type);
    }
  }

  Operand first_rows(const Operand& all, int64_t rows) {
    if (outside().type(all).shape[0] == rows) return all;
    const Node& node = outside().node(all);
    if (const auto number = filled_with(node))
      return fill(rewrite_, stack_type(row_type(node.types[0]), rows), *number);
    if (node.is<"cat">() && AttrReader(*node.op, node.attrs).dim("dim", node.types[0].shape.size()) == 0 &&
        outside().type(node.inputs[0]) == stack_type(row_type(node.types[0]), rows))
      return node.inputs[0];  // the padding that this pass adds
    return narrow(all, 0, rows);
  }

  Operand narrow(const Operand& all, int64_t start, int64_t length) {
    return rewrite_.emit<"narrow">({all}, {{"dim", int64_t(1)}, {"start", start + 1}, {"length", length}});
  }

  Operand reshape(const Operand& x, const Type& to) {
    if (outside().type(x).shape == to.shape) return x;
    return rewrite_.emit<"reshape_to">({x}, {{"shape", Ints(to.shape.begin(), to.shape.end())}});
  }

  bool no_steps() {
    rewrite_.replace(at_, 0, fill(rewrite_, old_types_[0], 0));
    for (const LoopEdit::Carry& carry : loop_.carries)
      for (int32_t output : carry.outputs) rewrite_.replace(at_, size_t(output), carry.from);
    for (const LoopEdit::Stack& stack : loop_.stacks)
      for (int32_t output : stack.outputs)
        rewrite_.replace(at_, size_t(output), fill(rewrite_, old_types_[size_t(output)], 0));
    return true;
  }

  // Uses of counters.

  // Turns captures into slices if a counter picks their rows.
  bool pick_rows() {
    bool any = false;
    const int64_t rows = loop_.form().limit;
    for (size_t i = 0; rows > 0 && i < body_.nodes.size(); ++i) {
      const Node& node = body_.nodes[i];
      if (!node.is<"index_select">()) continue;
      const auto table = std::find_if(loop_.captures.begin(), loop_.captures.end(),
                                      [&](const auto& c) { return c.input == node.inputs[0].node; });
      const auto at = value(node.inputs[1]);
      if (table == loop_.captures.end() || !at || at->by != 1) continue;
      const Operand from = table->from;
      const AttrReader c(*node.op, node.attrs);
      const Dims& shape = outside().type(from).shape;
      const int64_t start = at->from + 1 - c.attr<int64_t>("index_base");
      if (shape.size() == 0 || c.dim("dim", shape.size()) != 0 || start < 0 || start + rows > shape[0]) continue;
      const Operand picked = rows == shape[0] ? from : narrow(from, start, rows);
      loop_.make_slice(int32_t(i), reshape(picked, stack_type(node.types[0], rows)));
      any = true;
    }
    return any;
  }

  // Replaces stacks of counters by ranges.
  bool know_rows() {
    if (!loop_.runs_all() || !padded_.empty()) return false;
    return std::erase_if(loop_.stacks, [&](const LoopEdit::Stack& stack) {
             if (!counts(row_type(stack.type)) || !is_counter(stack.row)) return false;
             const Affine v = *value(stack.row);
             const double last = double(v.by * loop_.form().limit + v.from);
             const AttrList attrs = {
                 {"start", double(v.by + v.from)}, {"stop", last}, {"step", double(v.by)}, {"dtype", stack.type.dtype}};
             const Operand range = rewrite_.emit<"range">({}, attrs);
             for (int32_t output : stack.outputs) rewrite_.replace(at_, size_t(output), reshape(range, stack.type));
             return true;
           }) > 0;
  }

  // Replaces the final values of counters by numbers.
  bool know_finals() {
    bool any = false;
    for (size_t k = 0; k < counters_.size() && loop_.runs_all(); ++k) {
      if (!counters_[k]) continue;
      const Affine& v = *counters_[k];
      for (int32_t output : loop_.carries[k].outputs) {
        if (!read_[size_t(output)].any) continue;
        rewrite_.replace(at_, size_t(output),
                         fill(rewrite_, old_types_[size_t(output)], double(v.by * (loop_.form().limit + 1) + v.from)));
        any = true;
      }
      loop_.carries[k].outputs.clear();
    }
    return any;
  }

  // Removes carries and slices whose values follow from the number of the row.
  bool drop_counters() {
    bool any = false;
    for (size_t k = counters_.size(); k-- > 0;) {
      if (!counters_[k] || !be_counter(loop_.carries[k].input, *counters_[k])) continue;
      for (int32_t output : loop_.carries[k].outputs) finals_.emplace_back(output, counters_[k]->from + 1);
      loop_.carries.erase(loop_.carries.begin() + ptrdiff_t(k));
      any = true;
    }
    const size_t dropped = std::erase_if(loop_.slices, [&](const LoopEdit::Part& slice) {
      const auto& v = values_[size_t(slice.input)];
      return v && be_counter(slice.input, *v);
    });
    return any || dropped > 0;
  }

  // Makes node `at` of the body the index plus a number. Returns false if that is not possible.
  bool be_counter(int32_t at, const Affine& v) {
    if (v.by != 1 || index().node > at || !(body_.type(index()) == body_.nodes[size_t(at)].types[0])) return false;
    if (v.from == 0) {
      loop_.redirect(Operand::of(size_t(at)), index());
    } else {
      const Operand inputs[] = {index(), Operand::immediate(double(v.from))};
      body_.nodes[size_t(at)] = make_node(body_, op_named<"add">(), inputs, {}, -1);
    }
    return true;
  }

  void write() {
    const Operand steps = settled_ ? fill(rewrite_, old_types_[0], double(loop_.form().limit)) : Operand();
    const size_t at = loop_.write(rewrite_, at_);
    if (settled_) rewrite_.replace(at_, 0, steps);
    for (const auto& [output, more] : finals_)
      rewrite_.replace(at_, size_t(output),
                       rewrite_.emit<"add">({Operand::of(at, 0), Operand::immediate(double(more))}));
    for (size_t k = 0; k < padded_.size(); ++k) {
      const auto& [outputs, type] = padded_[k];
      const Operand zeros = fill(rewrite_, stack_type(row_type(type), rows_ - loop_.form().limit), 0);
      const Operand padded = rewrite_.emit<"cat">({loop_.stack_of(at, k), zeros}, {{"dim", int64_t(1)}});
      for (int32_t output : outputs) rewrite_.replace(at_, size_t(output), padded);
    }
  }

  Rewrite& rewrite_;
  const size_t at_;
  const SmallVector<Type, 1> old_types_;
  const std::vector<Readers>& read_;
  LoopEdit loop_;
  Graph& body_;
  const int64_t rows_;  // the limit before the pass
  bool changed_ = false, settled_ = false;
  std::vector<std::optional<Affine>> values_, counters_;       // by node of the body; by carry
  std::vector<std::pair<std::vector<int32_t>, Type>> padded_;  // of the first stacks: the old outputs and their type
  std::vector<std::pair<int32_t, int64_t>> finals_;            // an output, and by how much it exceeds `steps`
};

// Returns the result of a scatter of consecutive rows: the rows between zeros.
std::optional<Operand> scattered(Rewrite& rewrite, const Node& node) {
  if (!node.is<"index_select_backward">()) return std::nullopt;
  const AttrReader c(*node.op, node.attrs);
  const int64_t count = numel(rewrite.graph().type(node.inputs[1]).shape), size = node.types[0].shape[0];
  const auto first = first_of_run(rewrite.graph(), node.inputs[1], count);
  const int64_t start = first ? *first - c.attr<int64_t>("index_base") : -1;
  if (c.attr<int64_t>("dim") != 1 || start < 0 || start + count > size) return std::nullopt;
  const Type row = row_type(node.types[0]), rows = stack_type(row, count);
  Operands pieces;
  if (start > 0) pieces.push_back(fill(rewrite, stack_type(row, start), 0));
  pieces.push_back(
      rewrite.emit<"reshape_to">({node.inputs[0]}, {{"shape", Ints(rows.shape.begin(), rows.shape.end())}}, node.line));
  if (start + count < size) pieces.push_back(fill(rewrite, stack_type(row, size - start - count), 0));
  return pieces.size() == 1 ? pieces[0] : rewrite.emit<"cat">(pieces, {{"dim", int64_t(1)}}, node.line);
}

std::vector<std::vector<Readers>> readers_of(const Graph& graph) {
  std::vector<std::vector<Readers>> readers;
  for (const Node& node : graph.nodes) readers.emplace_back(node.types.size());
  const auto mark = [&](const Operand& operand, bool slice) {
    if (!operand.is_node()) return;
    Readers& of = readers[size_t(operand.node)][size_t(operand.output)];
    of.any = true;
    of.slices_only &= slice;
  };
  for (const Node& node : graph.nodes) {
    const LoopForm form = node.is<"loop">() ? loop_form(node) : LoopForm();
    const size_t first = size_t(form.first_slice(false)), end = first + size_t(form.slices);
    for (size_t k = 0; k < node.inputs.size(); ++k) mark(node.inputs[k], k >= first && k < end);
  }
  for (const Operand& output : graph.outputs) mark(output, false);
  for (const TypeGuard& guard : graph.guards) mark(guard.of, false);
  return readers;
}

}  // namespace

Graph count_steps(Graph graph) {
  const auto readers = readers_of(graph);
  return rewrite_each(std::move(graph), [&](Rewrite& rewrite, size_t i, const Node& node) {
    if (node.is<"loop">() && Steps(rewrite, i, node, readers[i]).run()) return true;
    const auto rows = node.kind == NodeKind::kOp ? scattered(rewrite, node) : std::nullopt;
    if (rows) rewrite.replace(i, 0, *rows);
    return rows.has_value();
  });
}

}  // namespace pg
