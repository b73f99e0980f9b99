// Random specialized graphs: pointwise ops, reductions, products, views, creation and conversion over a few shapes and
// dtypes. The same seed gives the same graph. A step whose types infer rejects is discarded, so all types are valid.
#pragma once
#include <algorithm>
#include <random>

#include "pass_graphs.h"

namespace pg::test {

struct RandomGraphOptions {
  int steps = 30;
  int inputs = 4;
  int outputs = 3;
  bool floats_only = false;  // only float32
  bool special = true;       // whether inputs have NaN, infinities and signed zeros among their elements
};

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed, RandomGraphOptions options = {}) : options_(options), random_(seed) {
    for (int i = 0; i < options.inputs; ++i)
      pool_.push_back(maker_.input(fmt::format("x{}", i + 1).c_str(), shape(), dtype()));
    for (int tries = 0, taken = 0; taken < options.steps && tries < options.steps * 20; ++tries) taken += step();
    // The last values come first, because most of the graph leads to them.
    for (int k = 0; k < options.outputs; ++k) {
      const size_t back = size_t(k) + (k ? pick(4) : 0);
      maker_.graph.outputs.push_back(pool_[pool_.size() - 1 - std::min(back, pool_.size() - 1)]);
    }
    verify(maker_.graph);
  }

  const Graph& graph() const { return maker_.graph; }

  std::vector<Value> inputs() {
    std::vector<Value> values;
    for (int32_t i : maker_.graph.inputs) values.push_back(fill(maker_.graph.nodes[size_t(i)].types[0]));
    return values;
  }

 private:
  using Arg = GraphSketch::Arg;
  size_t pick(size_t n) { return size_t(random_() % n); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[pick(list.size())];
  }
  Dims shape() { return one_of<Dims>({{}, {4}, {3, 4}, {3, 4}, {3, 4}, {1, 4}, {3, 1}, {2, 3, 4}, {4, 4}, {1}}); }
  DType dtype() {
    if (options_.floats_only || pick(3)) return DType::kFloat32;
    return one_of({DType::kFloat64, DType::kInt32, DType::kBool, DType::kFloat16, DType::kUInt8, DType::kInt64});
  }

  Value fill(const Type& type) {
    Value v = make_array(type);
    std::uniform_real_distribution<double> uniform(-2, 2);
    char* at = static_cast<char*>(v.array().data());
    for (int64_t i = 0; i < v.numel(); ++i, at += size_of(type.dtype)) {
      double x = uniform(random_);
      if (options_.special && is_float(type.dtype) && pick(12) == 0)
        x = one_of({0.0, -0.0, double(NAN), double(INFINITY), -double(INFINITY), 1.0});
      if (!is_float(type.dtype))
        x = type.dtype == DType::kBool    ? double(pick(2))
            : type.dtype == DType::kUInt8 ? double(pick(5))
                                          : std::floor(x * 2);
      store_number(type.dtype, at, x);
    }
    return v;
  }

  const Type& type(const Operand& x) const { return maker_.graph.type(x); }
  Operand any() {
    return pool_[pool_.size() - 1 - std::min(pick(pool_.size()), pick(pool_.size()))];
  }  // prefers late ones
  Arg number() { return one_of({0.0, -0.0, 1.0, 2.0, -1.0, 0.5, 3.0}); }
  Arg any_or_number() { return pick(4) ? Arg(any()) : number(); }

  bool take(const char* op, std::vector<Arg> inputs, AttrList attrs = {}) try {
    if (std::none_of(inputs.begin(), inputs.end(), [](const Arg& a) { return a.is_node(); }) && !inputs.empty())
      return false;
    const Operand out = maker_.op(op, inputs, attrs);
    if (numel(type(out).shape) > 4096) return maker_.graph.nodes.pop_back(), false;
    pool_.push_back(out);
    return true;
  } catch (const Error&) {
    return false;
  }

  bool step() {
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
        return take(unary(), {any()});
      case 3:
      case 4:
      case 5:
        return take(binary(), {any_or_number(), any_or_number()});
      case 6:
        return select();
      case 7:
        return reduce();
      case 8:
      case 9:
        return view();
      case 10:
        return create();
      default:
        return product();
    }
  }
  const char* unary() {
    return one_of({"neg", "abs", "exp", "tanh", "sigmoid", "relu", "square", "sqrt", "logical_not", "floor", "sign",
                   "clone", "detach", "contiguous", "gelu", "isnan", "silu", "reciprocal"});
  }
  const char* binary() {
    return one_of({"add", "sub", "mul", "div", "add", "mul", "sub", "maximum", "minimum", "pow", "lt", "eq", "ge",
                   "relu_grad", "tanh_grad", "logical_and", "sigmoid_grad"});
  }
  bool select() {
    const Operand condition = any();
    if (type(condition).dtype == DType::kBool) return take("where", {condition, any_or_number(), any()});
    return take("clamp", {condition, pick(2) ? number() : Arg(Operand()), pick(2) ? Arg(any()) : number()});
  }
  bool product() {
    if (pick(2)) return take("matmul", {any(), any()});
    return take("linear", {any(), any(), pick(2) ? Arg(any()) : Arg(Operand())});
  }
  bool reduce() {
    const Operand x = any();
    const int rank = type(x).shape.size();
    if (pick(3) == 0) return take("sum_to", {x}, {{"shape", literal(shape())}});
    const char* op = one_of({"sum", "mean", "amax", "sum", "prod", "count_nonzero", "amin", "softmax"});
    if (std::string_view(op) == "softmax") return take(op, {x}, {{"dim", int64_t(-1)}});
    if (rank == 0 || pick(3) == 0) return take(op, {x});
    return take(op, {x}, {{"dim", Ints{int64_t(pick(size_t(rank))) + 1}}, {"keepdim", bool(pick(2))}});
  }
  static Ints literal(const Dims& dims) { return Ints(dims.begin(), dims.end()); }
  bool view() {
    const Operand x = any();
    const Dims& from = type(x).shape;
    const int rank = from.size();
    switch (pick(8)) {
      case 0:
        return take("reshape_to", {x}, {{"shape", literal(shape())}});
      case 1:
        return take("flatten", {x});
      case 2:
        return take("expand", {x}, {{"shape", literal(shape())}});
      case 3:
        return take("unsqueeze", {x}, {{"dim", int64_t(pick(size_t(rank + 1))) + 1}});
      case 4:
        return take("squeeze", {x});
      case 5:
        return take("to", {x}, {{"dtype", dtype()}});
      case 6:
        return rank > 0 && take("narrow", {x},
                                {{"dim", int64_t(1)},
                                 {"start", int64_t(1)},
                                 {"length", std::max<int64_t>(1, from[0] - int64_t(pick(2)))}});
      default:
        return rank > 0 && take("transpose", {x},
                                {{"dim0", int64_t(pick(size_t(rank))) + 1}, {"dim1", int64_t(pick(size_t(rank))) + 1}});
    }
  }
  bool create() {
    if (pick(3) == 0) return take(one_of({"zeros_like", "ones_like"}), {any()});
    if (pick(3) == 0) return take("range", {}, {{"start", 1.0}, {"stop", 4.0}, {"dtype", DType::kFloat32}});
    return take("full", {}, {{"shape", literal(shape())}, {"value", number().number}, {"dtype", DType::kFloat32}});
  }

  RandomGraphOptions options_;
  std::mt19937 random_;
  GraphSketch maker_;
  std::vector<Operand> pool_;
};

}  // namespace pg::test
