// einsum: the equation is parsed once and becomes a chain of permutes, reshapes and matrix products.
#include <algorithm>
#include <array>
#include <string>

#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

// Letters have labels 0 to 51. The dims of an ellipsis, counted from the right, have labels from 52 on.
constexpr int kLetters = 52, kLabels = kLetters + kMaxRank;
using Labels = std::vector<int>;

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
  std::array<int64_t, kLabels> size;  // -1: the label does not occur
};

int letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return -1;
}

class Parser {
 public:
  Parser(const char* op, const std::string& text) : op_(op), text_(text) {
    for (char c : text)
      if (c != ' ') rest_ += c;
  }

  Equation parse(std::span<const Value> inputs) {
    Equation e;
    e.size.fill(-1);
    const size_t arrow = rest_.find("->");
    const std::string left = rest_.substr(0, arrow);
    size_t at = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t end = i + 1 < inputs.size() ? left.find(',', at) : left.size();
      if (end == std::string::npos) bad(fmt::format("{} operands, separated by commas", inputs.size()));
      e.inputs.push_back(labels(left.substr(at, end - at), inputs[i].rank()));
      note_sizes(e, i, inputs[i].shape());
      at = end + 1;
    }
    e.output = arrow == std::string::npos ? implied_output(e) : output(e, rest_.substr(arrow + 2));
    return e;
  }

 private:
  [[noreturn]] void bad(const std::string& expected) const {
    bad_argument(op_, "equation", expected, to_string(AttrValue(text_)));
  }

  // An ellipsis covers the dims of `rank` that have no letter.
  Labels labels(const std::string& term, int rank) {
    int letters = 0;
    for (char c : term) letters += c != '.';
    Labels out;
    bool ellipsis = false;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0 && !ellipsis) {
        for (int d = rank - letters; d-- > 0;) out.push_back(kLetters + d);
        ellipsis = true;
        i += 2;
        continue;
      }
      if (letter(term[i]) < 0) bad("letters, \"...\", commas and one \"->\"");
      out.push_back(letter(term[i]));
    }
    if (int(out.size()) != rank) bad(fmt::format("a term of {} letters for an operand of {} dims", rank, rank));
    return out;
  }

  void note_sizes(Equation& e, size_t operand, const Dims& shape) {
    const Labels& labels = e.inputs[operand];
    for (int d = 0; d < shape.size(); ++d) {
      const int first = int(std::find(labels.begin(), labels.end(), labels[size_t(d)]) - labels.begin());
      if (shape[first] != shape[d])
        bad(fmt::format("equal sizes for a letter that occurs twice in operand {}, which has {} and {}", operand + 1,
                        shape[first], shape[d]));
      int64_t& size = e.size[size_t(labels[size_t(d)])];
      if (size >= 0 && size != 1 && shape[d] != 1 && size != shape[d])
        bad(fmt::format("equal sizes for a letter; operand {} has {} where another has {}", operand + 1, shape[d],
                        size));
      if (size < 0 || size == 1) size = shape[d];
    }
  }

  static int occurrences(const Equation& e, int label) {
    int n = 0;
    for (const Labels& term : e.inputs) n += int(std::count(term.begin(), term.end(), label));
    return n;
  }

  static void push_ellipsis(const Equation& e, Labels& out) {
    for (int label = kLabels - 1; label >= kLetters; --label)
      if (e.size[size_t(label)] >= 0) out.push_back(label);
  }

  static Labels implied_output(const Equation& e) {
    Labels out;
    push_ellipsis(e, out);
    for (int label = 0; label < kLetters; ++label)
      if (occurrences(e, label) == 1) out.push_back(label);
    return out;
  }

  Labels output(const Equation& e, const std::string& term) {
    Labels out;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0) {
        push_ellipsis(e, out);
        i += 2;
        continue;
      }
      const int label = letter(term[i]);
      if (label < 0 || e.size[size_t(label)] < 0) bad("an output of letters of the operands");
      if (std::find(out.begin(), out.end(), label) != out.end()) bad("each letter at most once in the output");
      out.push_back(label);
    }
    return out;
  }

  const char* op_;
  const std::string& text_;
  std::string rest_;
};

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

struct Operand {
  Var value;
  Labels labels;
};

// Replaces dims that occur twice in one operand by their diagonal.
void take_diagonals(Operand& o) {
  for (size_t i = 0; i < o.labels.size(); ++i)
    for (size_t j = i + 1; j < o.labels.size(); ++j) {
      if (o.labels[i] != o.labels[j]) continue;
      const int label = o.labels[i];
      o.value = call<"diagonal">(o.value, {{"dim1", int64_t(i) + 1}, {"dim2", int64_t(j) + 1}});
      o.labels.erase(o.labels.begin() + int(j));
      o.labels.erase(o.labels.begin() + int(i));
      o.labels.push_back(label);
      i = size_t(-1);
      break;
    }
}

// Drops dims of size 1 that are longer in another operand: the product broadcasts them.
void drop_broadcast_dims(Operand& o, const Equation& e) {
  Dims shape;
  Labels kept;
  for (size_t d = 0; d < o.labels.size(); ++d) {
    if (o.value.shape()[int(d)] == 1 && e.size[size_t(o.labels[d])] != 1) continue;
    shape.push_back(o.value.shape()[int(d)]);
    kept.push_back(o.labels[d]);
  }
  if (kept.size() == o.labels.size()) return;
  o.value = with_shape(o.value, shape);
  o.labels = kept;
}

void sum_out(Operand& o, const Labels& needed) {
  Ints dims;
  Labels kept;
  for (size_t d = 0; d < o.labels.size(); ++d) {
    if (has(needed, o.labels[d]))
      kept.push_back(o.labels[d]);
    else
      dims.push_back(int64_t(d) + 1);
  }
  if (dims.empty()) return;
  o.value = call<"sum">(o.value, {{"dim", dims}});
  o.labels = kept;
}

Var permuted(const Operand& o, const Labels& order) {
  if (order == o.labels) return o.value;
  Ints dims;
  for (int label : order) dims.push_back(std::find(o.labels.begin(), o.labels.end(), label) - o.labels.begin() + 1);
  return call<"permute">(o.value, {{"dims", dims}});
}

Labels joined(const Labels& a, const Labels& b, const Labels& c = {}) {
  Labels out = a;
  out.insert(out.end(), b.begin(), b.end());
  out.insert(out.end(), c.begin(), c.end());
  return out;
}

int64_t extent(const Equation& e, const Labels& labels) {
  int64_t n = 1;
  for (int label : labels) n = times(n, e.size[size_t(label)]);
  return n;
}

// Returns the product of two operands, summed over the labels that are not needed later.
Operand contract(const Equation& e, Operand a, Operand b, const Labels& needed) {
  sum_out(a, joined(needed, b.labels));
  sum_out(b, joined(needed, a.labels));
  Labels batch, summed, left, right;
  for (int label : a.labels) (!has(b.labels, label) ? left : has(needed, label) ? batch : summed).push_back(label);
  for (int label : b.labels)
    if (!has(a.labels, label)) right.push_back(label);
  const int64_t batches = extent(e, batch), rows = extent(e, left), depth = extent(e, summed), cols = extent(e, right);
  const Var x = with_shape(permuted(a, joined(batch, left, summed)), {batches, rows, depth});
  const Var y = with_shape(permuted(b, joined(batch, summed, right)), {batches, depth, cols});
  const Var product = summed.empty() ? x * y : call<"matmul">(x, y);
  const Labels labels = joined(batch, left, right);
  Dims shape;
  for (int label : labels) shape.push_back(e.size[size_t(label)]);
  return {with_shape(product, shape), labels};
}

void infer_einsum(Infer& c) {
  if (c.count() == 0) fail(c.op().name, "needs at least one tensor");
  const Equation e = Parser(c.op().name, c.attr<std::string>("equation")).parse(c.inputs());
  Dims out;
  for (int label : e.output) out.push_back(e.size[size_t(label)]);
  DType type = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i) type = promote(type, c.dtype(i));
  c.output(type, out);
}

std::vector<Var> decompose_einsum(Rule& c) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.count(); ++i) inputs.push_back(c.input(i));
  const Equation e = Parser(c.op().name, c.attr<std::string>("equation")).parse(inputs);
  std::vector<Operand> operands;
  for (size_t i = 0; i < c.count(); ++i) {
    Operand& o = operands.emplace_back(Operand{c.in(i), e.inputs[i]});
    take_diagonals(o);
    drop_broadcast_dims(o, e);
  }
  Operand result = std::move(operands[0]);
  for (size_t i = 1; i < operands.size(); ++i) {
    Labels needed = e.output;
    for (size_t j = i + 1; j < operands.size(); ++j) needed = joined(needed, operands[j].labels);
    result = contract(e, std::move(result), std::move(operands[i]), needed);
  }
  sum_out(result, e.output);
  return {permuted(result, e.output)};
}

}  // namespace

void add_einsum_op(Registry& r) {
  const OpDef rows[] = {
      {.name = "einsum",
       .doc =
           "Sums of products by Einstein's convention: one letter per dim of each tensor, terms separated by commas, "
           "then \"->\" and the letters of the result (by default those that occur once, in alphabetic order). \"...\" "
           "is for leading dims that broadcast; a letter that occurs twice in a term selects the diagonal.",
       .example = "return pg.einsum(\"ij,jk->ik\", pg.ones(2, 3), pg.ones(3, 4))",
       .inputs = {{"tensors", kNumeric, Arity::kList}},
       .attrs = {{"equation", AttrKind::kString, {}, "the terms"}},
       .signature = "equation tensors",
       .infer = infer_einsum,
       .decompose = decompose_einsum,
       .traits = kFunctionOnly},
  };
  r.add(rows);
}

}  // namespace pg
