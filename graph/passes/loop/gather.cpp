// Gathering of gradients: a loop that adds a product to a sum in each step, such as the gradient of a recurrent cell's
// weights, returns the factors of all steps instead. One product after the loop computes the whole sum.
//
// The pass applies to a carry that starts from zeros, that only its own sum reads, and to which each step adds:
// products of two matrices that both differ from step to step, scatters of index_select_backward, or sums of values
// whose rows are available anyway (so a bias is gathered with its weight) or have 16 bits: a sum of these would lose
// the terms of later steps. The rows of steps that did not run are zeros and add nothing. A new stack has at most 512
// MiB. The terms are added in another order: results differ by a few units in the last place of the largest term, and a
// zero sum may have another sign.
#include <algorithm>

#include "graph/passes/loop/loop.h"
#include "graph/passes/passes.h"
#include "tensor/op.h"

namespace pg {
namespace {

// The value that a step adds to a sum, in a form that can be summed over all steps.
struct Term {
  enum Kind { kProduct, kScatter, kSum } kind = kSum;
  Operand value;               // of the body: the product, the scatter, or the operand of the sum
  std::vector<int64_t> dims;   // of kSum: dims of the row that are also summed
  Dims shape;                  // of the sum of the row
  std::vector<int32_t> views;  // nodes of the body that view the sum, innermost first
};

class Gather {
 public:
  explicit Gather(const Node& node) : loop(node), after(loop) {
    uses_.resize(loop.body.nodes.size());
    for (const Node& n : loop.body.nodes)
      for (const Operand& operand : n.inputs)
        if (operand.is_node()) ++uses_[size_t(operand.node)];
    for (const Operand& operand : loop.wanted()) ++uses_[size_t(operand.node)];
  }
  LoopEdit loop;
  AfterLoop after;

  // Sums of products and scatters come first. The others use the stacks that these add to the loop.
  bool run(const Graph& graph) {
    for (const bool products : {true, false})
      for (size_t k = 0; k < loop.carries.size();)
        if (!gather(graph, loop.carries[k], products))
          ++k;
        else
          loop.carries.erase(loop.carries.begin() + ptrdiff_t(k));
    return !sums_.empty();
  }

  void write(Rewrite& rewrite, size_t i) {
    const size_t at = loop.write(rewrite, i);
    for (const auto& [outputs, sum] : sums_) {
      const Operand whole = after.copy(sum, rewrite, at);
      for (int32_t output : outputs) rewrite.replace(i, size_t(output), whole);
    }
  }

 private:
  const Node& node(const Operand& operand) const { return loop.body.node(operand); }
  const Dims& shape(const Operand& operand) const { return loop.body.type(operand).shape; }
  int32_t uses(const Operand& operand) const { return uses_[size_t(operand.node)]; }

  bool gather(const Graph& graph, const LoopEdit::Carry& carry, bool products) {
    const Type& type = loop.body.nodes[size_t(carry.input)].types[0];
    const Node& start = graph.node(carry.from);
    if (!is_float(type.dtype) || filled_with(start) != 0.0) return false;
    std::vector<Operand> values;
    if (uses_[size_t(carry.input)] != 1 || !added(carry.next, Operand::of(size_t(carry.input)), type, values))
      return false;
    std::vector<Term> terms;
    for (const Operand& value : values) {
      auto term = term_of(value, products);
      if (!term) return false;
      terms.push_back(std::move(*term));
    }
    const bool any = std::any_of(terms.begin(), terms.end(), [](const Term& t) { return t.kind != Term::kSum; });
    if (terms.empty() || any != products) return false;
    Operand total;
    for (const Term& term : terms) {
      const Operand sum = sum_of(term);
      total = total.is_node() ? after.lifter.emit<"add">({total, sum}) : sum;
    }
    if (!(after.lifter.type(total) == type)) throw Error("graph: gather_gradients: a sum of another type");
    sums_.emplace_back(carry.outputs, total);
    return true;
  }

  // Collects the values that an expression of additions adds to `sum`. Returns false if the expression is not of that
  // form.
  bool added(const Operand& operand, const Operand& sum, const Type& type, std::vector<Operand>& values) const {
    const Node& add = node(operand);
    if (!add.is<"add">() || uses(operand) != 1) return false;
    bool found = false;
    std::vector<Operand> open{operand};
    while (!open.empty()) {
      const Operand at = open.back();
      open.pop_back();
      if (at == sum) {
        found = true;
      } else if (node(at).is<"add">() && uses(at) == 1 && adds_alike(node(at), type)) {
        open.insert(open.end(), {node(at).inputs[1], node(at).inputs[0]});
      } else {
        values.push_back(at);
      }
    }
    return found;
  }

  bool adds_alike(const Node& add, const Type& type) const {
    return std::all_of(add.inputs.begin(), add.inputs.end(),
                       [&](const Operand& o) { return o.is_node() && loop.body.type(o) == type; });
  }

  std::optional<Term> term_of(const Operand& value, bool products) const {
    Term term;
    for (Operand at = value;; at = node(at).inputs[0]) {
      const Node& n = node(at);
      if (n.kind != NodeKind::kOp) break;
      // Two biases of one sum have the same gradient.
      const bool only_sum = at == value && n.op->has(kReduction);
      if (uses(at) != 1 && !only_sum) break;
      term.value = at;
      term.shape = n.types[0].shape;
      if (products && is_product(n)) return term.kind = Term::kProduct, finished(term);
      if (products && is_scatter(n)) return term.kind = Term::kScatter, finished(term);
      if (sums(n, term.dims)) {
        term.value = n.inputs[0];
        if (after.has_rows(term.value)) return finished(term);
        break;
      }
      if (!n.is<"reshape_to">() && !n.is<"permute">()) break;
      term.views.push_back(at.node);
    }
    if (!may_sum(value)) return std::nullopt;
    Term whole;
    whole.value = value;
    whole.shape = shape(value);
    return whole;
  }

  static Term finished(Term term) {
    std::reverse(term.views.begin(), term.views.end());
    return term;
  }

  // Whether the node is a product of two matrices that both differ from step to step.
  bool is_product(const Node& n) const {
    if (!n.has(kProduct)) return false;
    for (const Operand& operand : n.inputs)
      if (!operand.is_node() || shape(operand).size() != 2 || after.is_same(operand) || !may_stack(operand) ||
          loop.body.type(operand).dtype != n.types[0].dtype)
        return false;
    return true;
  }

  // valid_rows needs a first row if some steps may not run.
  bool is_scatter(const Node& n) const {
    if (!n.is<"index_select_backward">() || attr(n, "dim") != 1) return false;
    if (!loop.runs_all() && (attr(n, "index_base") != 1 || attr(n, "size") == 0)) return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(),
                       [&](const Operand& o) { return !after.is_same(o) && may_stack(o); });
  }

  bool may_stack(const Operand& operand) const {
    return after.has_rows(operand) || affordable(loop.body.type(operand), loop.form().limit);
  }

  bool may_sum(const Operand& operand) const {
    if (after.has_rows(operand)) return true;
    return is_half(loop.body.type(operand).dtype) && !after.is_same(operand) && may_stack(operand);
  }

  static int64_t attr(const Node& n, const char* name) {
    return std::get<int64_t>(n.attrs[size_t(n.op->attr_index(name))]);
  }

  // Whether each step scatters into the row with its own number.
  bool fills_rows(const Node& n) const {
    Operand index = n.inputs[1];
    while (node(index).is<"reshape_to">()) index = node(index).inputs[0];
    return index == Operand::of(size_t(loop.body.inputs[0])) && attr(n, "index_base") == 1 &&
           attr(n, "size") == loop.form().limit;
  }

  // Whether the node sums over dims of its operand. Appends those dims.
  bool sums(const Node& n, std::vector<int64_t>& dims) const {
    if (!n.is<"sum">() && !n.is<"sum_to">()) return false;
    const Dims& from = shape(n.inputs[0]);
    if (loop.body.type(n.inputs[0]).dtype != n.types[0].dtype) return false;
    if (n.is<"sum">()) {
      for (int64_t d : AttrReader(*n.op, n.attrs).dims("dim", from.size())) dims.push_back(d);
      return true;
    }
    const Dims& to = n.types[0].shape;
    for (int d = 0; d < from.size(); ++d) {
      const int place = d - (from.size() - to.size());
      if (place < 0 || to[place] != from[d]) dims.push_back(d);
    }
    return true;
  }

  // The rows of steps that did not run hold zeros, which are not valid indices. Their gradients are zeros too, so their
  // index may be that of any row: it becomes the first.
  Operand valid_rows(const Operand& operand) {
    const Operand index = after.rows(operand);
    if (loop.runs_all()) return index;
    const Operand missing = after.lifter.emit<"eq">({index, Operand::immediate(0)});
    const Operand one = after.lifter.emit<"to">({missing}, {{"dtype", after.lifter.type(index).dtype}});
    return after.lifter.emit<"add">({index, one});
  }

  Operand sum_of(const Term& term) {
    after.lifter.line = node(term.value).line;
    Operand at;
    if (term.kind == Term::kProduct) {
      at = product(node(term.value));
    } else if (term.kind == Term::kScatter) {
      const Node& n = node(term.value);
      const Operand dy = after.rows(n.inputs[0]);
      at = fills_rows(n) ? after.lifter.reshape(dy, term.shape)
                         : after.lifter.emit(*n.op, Operands{dy, valid_rows(n.inputs[1])}, n.attrs);
    } else {
      Ints dims{1};
      for (int64_t d : term.dims) dims.push_back(d + 2);
      at = after.lifter.reshape(after.lifter.emit<"sum">({after.rows(term.value)}, {{"dim", dims}}), term.shape);
    }
    for (int32_t view : term.views) {
      const Node& n = loop.body.nodes[size_t(view)];
      at = after.lifter.emit(*n.op, Operands{at}, n.attrs);
    }
    return at;
  }

  // The sum of x y over the steps. The xᵀ of all steps, stacked along the rows, are transposed and multiplied with the
  // stacked y.
  Operand product(const Node& n) {
    Operand x = n.inputs[0];
    const Dims left = shape(x), right = shape(n.inputs[1]);
    const int64_t rows = left[1] * std::max<int64_t>(loop.form().limit, 0);
    Operand all;
    if (node(x).is<"permute">() && !(node(x).inputs[0] == x) && shape(node(x).inputs[0]) == Dims{left[1], left[0]} &&
        turns(node(x))) {
      all = after.rows(node(x).inputs[0]);
    } else {
      all = after.rows(x);
      if (left[0] != 1 && left[1] != 1) all = after.lifter.emit<"permute">({all}, {{"dims", Ints{1, 3, 2}}});
    }
    const Operand factor = after.lifter.reshape(all, Dims{rows, left[0]});
    const Operand other = after.lifter.reshape(after.rows(n.inputs[1]), Dims{rows, right[1]});
    return after.lifter.emit<"matmul">({after.lifter.emit<"permute">({factor}, {{"dims", Ints{2, 1}}}), other});
  }

  // Whether the node is a transposition.
  static bool turns(const Node& permute) {
    const AttrReader c(*permute.op, permute.attrs);
    return c.dims("dims", 2)[0] == 1;
  }

  std::vector<int32_t> uses_;
  std::vector<std::pair<std::vector<int32_t>, Operand>> sums_;
};

}  // namespace

Graph gather_gradients(Graph graph) {
  return rewrite_each(std::move(graph), [](Rewrite& rewrite, size_t i, const Node& node) {
    if (!node.is<"loop">() || loop_form(node).limit <= 0) return false;
    Gather gather(node);
    const bool found = gather.run(rewrite.graph());
    if (found) gather.write(rewrite, i);
    return found;
  });
}

}  // namespace pg
