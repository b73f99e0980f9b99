// Compares random bodies of pointwise ops with the same ops one by one.
#include <algorithm>

#include "fused_bodies.h"

using namespace pg;
using namespace pg::test;

namespace {

class RandomBody {
 public:
  explicit RandomBody(uint32_t seed) : rng(seed) {
    const Dims spaces[] = {{}, {7}, {3000}, {3, 4}, {5, 600}, {2, 3, 460}, {33, 65}, {4, 1, 9}, {0, 3}};
    space_ = spaces[rng() % 9];
    const bool floats = rng() % 2;
    const int inputs = 1 + int(rng() % 6), steps = 1 + int(rng() % 40);
    for (int i = 0; i < inputs; ++i) pool_.push_back(g.input(input_shape(), floats ? DType::kFloat32 : dtype()));
    full_ = g.input(space_);
    pool_.push_back(full_);
    for (int tries = 0, taken = 0; taken < steps && tries < 1000; ++tries) taken += step();
    add_outputs();
  }
  GraphMaker g;
  std::mt19937 rng;

 private:
  Dims input_shape() {
    if (rng() % 2) return space_;
    Dims shape = space_;
    for (int64_t& n : shape)
      if (rng() % 2) n = 1;
    while (!shape.empty() && rng() % 3 == 0) shape.erase(0);
    return shape;
  }
  DType dtype() {
    const DType all[] = {DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                         DType::kInt32,   DType::kInt64,   DType::kUInt8,   DType::kBool};
    return all[rng() % 9];
  }
  Operand any() { return pool_[pool_.size() - 1 - std::min(rng() % pool_.size(), rng() % pool_.size())]; }
  Operand any_or_number() {
    const double numbers[] = {2, -1, 0.5, 0, 3};
    return rng() % 5 ? any() : Operand::immediate(numbers[rng() % 5]);
  }

  bool step() try {
    const char* unary[] = {"neg",   "abs",  "exp",  "tanh",  "sigmoid", "relu",       "square", "sqrt",  "logical_not",
                           "floor", "sign", "gelu", "isnan", "atan",    "reciprocal", "to",     "detach"};
    const char* binary[] = {"add",      "sub",   "mul",       "div",       "maximum",      "minimum",     "lt",
                            "ge",       "eq",    "relu_grad", "tanh_grad", "sigmoid_grad", "logical_and", "logical_xor",
                            "copysign", "atan2", "hypot",     "add",       "mul",          "sub"};
    const uint32_t kind = rng() % 8;
    if (kind < 3) {
      const char* op = unary[rng() % 17];
      if (std::string_view(op) == "to")
        pool_.push_back(g.op(op, {any()}, {{"dtype", dtype()}}));
      else
        pool_.push_back(g.op(op, {any()}));
    } else if (kind < 7) {
      pool_.push_back(g.op(binary[rng() % 20], {any(), any_or_number()}));
    } else {
      const Operand c = any();
      if (g.graph.type(c).dtype == DType::kBool)
        pool_.push_back(g.op("where", {c, any_or_number(), any()}));
      else
        pool_.push_back(rng() % 2 ? g.op("lerp", {c, any(), any_or_number()})
                                  : g.op("clamp", {c, Operand::immediate(-1), any()}));
    }
    return true;
  } catch (const Error&) {
    return false;
  }

  void add_outputs() {
    for (int k = 0; k < 1 + int(rng() % 4); ++k) {
      Operand o = k == 0 ? pool_.back() : any();
      const int64_t n = numel(g.graph.type(o).shape);
      if (n != 1 && n != numel(space_)) o = g.op("where", {g.op("isnan", {full_}), Operand::immediate(1), o});
      g.output(o);
    }
    if (rng() % 3) return;
    Operand o = any();
    if (g.graph.type(o).shape.size() != space_.size() || !(g.graph.type(o).shape == space_)) o = full_;
    if (space_.empty()) return;
    const char* ops[] = {"sum", "amax", "mean", "count_nonzero"};
    try {
      g.graph.outputs.insert(g.graph.outputs.begin() + long(rng() % 2),
                             g.op(ops[rng() % 4], {o}, {{"dim", Ints{int64_t(space_.size())}}}));
    } catch (const Error&) {}
  }

  Dims space_;
  std::vector<Operand> pool_;
  Operand full_;
};

}  // namespace

TEST_CASE("fused: random bodies return the bits of their separate ops") {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    RandomBody body(seed);
    CAPTURE(seed);
    verify(body.g.graph);
    std::vector<Value> inputs;
    for (int32_t i : body.g.graph.inputs)
      inputs.push_back(random_value(body.rng, body.g.graph.nodes[size_t(i)].types[0], seed % 3 == 0));
    check_body(body.g.graph, inputs);
  }
}
