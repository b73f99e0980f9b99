// Steps become nodes by running their formulas on values that record what is done to them.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "tensor/cpu/pointwise/native_nodes.h"
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/kernels/formula.h"
#include "tensor/kernels/special.h"

#define PERIGEE_FORMULAS pg::cpu::recorded
#define PERIGEE_FORMULA_INLINE inline
#define PERIGEE_LAZY(...) [&] { return __VA_ARGS__; }
#define PERIGEE_FORMULA(Name, op_, inputs_, serves_, ...)                                    \
  struct Name;                                                                               \
  template <>                                                                                \
  struct Listed<__COUNTER__ - kBefore - 1> {                                                 \
    using F = Name;                                                                          \
    static constexpr FormulaRow row = {                                                      \
        .op = op_, .inputs = inputs_, .serves = Serves::serves_ __VA_OPT__(, ) __VA_ARGS__}; \
  };

#include "tensor/kernels/values-inl.h"
#include "tensor/kernels/convert-inl.h"

namespace pg::cpu::recorded {

using Op = NativeOp;

thread_local std::vector<NativeNode>* nodes;  // of the graph that is traced

int32_t record(const NativeNode& node) {
  if (!node.writes()) {
    const auto found = std::find(nodes->begin(), nodes->end(), node);
    if (found != nodes->end()) return int32_t(found - nodes->begin());
  }
  nodes->push_back(node);
  return int32_t(nodes->size()) - 1;
}
int32_t record(Op op, int32_t a, int32_t b = -1, uint8_t mode = 0) {
  return record(NativeNode{.op = op, .mode = mode, .operands = {a, b, -1, -1}});
}
int32_t constant(uint32_t bits) { return record(NativeNode{.op = Op::kConstant, .bits = bits}); }

// Masks and bools.
struct Truth {
  int32_t node;
};
struct Lanes {
  int32_t node;
  explicit Lanes(double number) : node(constant(std::bit_cast<uint32_t>(float(number)))) {}
  static Lanes of(int32_t node) {
    Lanes out(0.0, node);
    return out;
  }

 private:
  Lanes(double, int32_t of) : node(of) {}
};

constexpr uint32_t kSign = 0x80000000u;
enum Rounding : uint8_t { kNearest = 8, kDown, kUp, kToZero };  // 8: without exceptions
enum Predicate : uint8_t { kEq = 0, kLt = 1, kLe = 2, kUnordered = 3, kNe = 4, kGe = 13, kGt = 14 };

#define PERIGEE_RECORD1(name, ...) \
  inline Lanes name(Lanes x) { return Lanes::of(__VA_ARGS__); }
#define PERIGEE_RECORD2(name, ...) \
  inline Lanes name(Lanes x, Lanes y) { return Lanes::of(__VA_ARGS__); }
#define PERIGEE_COMPARE(name, ...) \
  inline Truth name(Lanes x, Lanes y) { return {record(Op::kCompare, x.node, y.node, __VA_ARGS__)}; }
#define PERIGEE_TRUTHS(name, ...) \
  inline Truth name(Truth x, Truth y) { return {__VA_ARGS__}; }
PERIGEE_RECORD1(operator-, record(Op::kXor, x.node, constant(kSign)))
PERIGEE_RECORD1(neg, record(Op::kXor, x.node, constant(kSign)))
PERIGEE_RECORD1(abs, record(Op::kAnd, x.node, constant(~kSign)))
PERIGEE_RECORD1(sqrt, record(Op::kSqrt, x.node))
PERIGEE_RECORD1(floor, record(Op::kRound, x.node, -1, kDown))
PERIGEE_RECORD1(ceil, record(Op::kRound, x.node, -1, kUp))
PERIGEE_RECORD1(round, record(Op::kRound, x.node, -1, kNearest))
PERIGEE_RECORD1(trunc, record(Op::kRound, x.node, -1, kToZero))
PERIGEE_RECORD2(operator+, record(Op::kAdd, x.node, y.node))
PERIGEE_RECORD2(operator-, record(Op::kSub, x.node, y.node))
PERIGEE_RECORD2(operator*, record(Op::kMul, x.node, y.node))
PERIGEE_RECORD2(operator/, record(Op::kDiv, x.node, y.node))
PERIGEE_RECORD2(add, record(Op::kAdd, x.node, y.node))
PERIGEE_RECORD2(sub, record(Op::kSub, x.node, y.node))
PERIGEE_RECORD2(mul, record(Op::kMul, x.node, y.node))
PERIGEE_RECORD2(copysign,
                record(Op::kOr, record(Op::kAnd, x.node, constant(~kSign)), record(Op::kAnd, y.node, constant(kSign))))
PERIGEE_COMPARE(operator==, kEq)
PERIGEE_COMPARE(operator!=, kNe)
PERIGEE_COMPARE(operator<, kLt)
PERIGEE_COMPARE(operator<=, kLe)
PERIGEE_COMPARE(operator>, kGt)
PERIGEE_COMPARE(operator>=, kGe)
inline Truth bits_not(Truth x) { return {record(Op::kXor, x.node, constant(~0u))}; }
PERIGEE_TRUTHS(bits_and, record(Op::kAnd, x.node, y.node))
PERIGEE_TRUTHS(bits_or, record(Op::kOr, x.node, y.node))
PERIGEE_TRUTHS(bits_xor, record(Op::kXor, x.node, y.node))
PERIGEE_TRUTHS(add, record(Op::kOr, x.node, y.node))
PERIGEE_TRUTHS(mul, record(Op::kAnd, x.node, y.node))
PERIGEE_TRUTHS(maximum, record(Op::kOr, x.node, y.node))
PERIGEE_TRUTHS(minimum, record(Op::kAnd, x.node, y.node))
PERIGEE_TRUTHS(operator==, bits_not(bits_xor(x, y)))
PERIGEE_TRUTHS(operator!=, bits_xor(x, y))
PERIGEE_TRUTHS(operator<, record(Op::kAndNot, x.node, y.node))
PERIGEE_TRUTHS(operator<=, bits_or(bits_not(x), y))
PERIGEE_TRUTHS(operator>, record(Op::kAndNot, y.node, x.node))
PERIGEE_TRUTHS(operator>=, bits_or(x, bits_not(y)))
#undef PERIGEE_RECORD1
#undef PERIGEE_RECORD2
#undef PERIGEE_COMPARE
#undef PERIGEE_TRUTHS

inline Truth nonzero(Truth x) { return x; }
inline Truth nonzero(Lanes x) { return x != Lanes(0); }
inline Truth is_nan(Truth) { return {constant(0)}; }
inline Truth is_inf(Truth) { return {constant(0)}; }
inline Truth is_finite(Truth) { return {constant(~0u)}; }
inline Truth is_nan(Lanes x) { return {record(Op::kCompare, x.node, x.node, kUnordered)}; }
inline Truth is_inf(Lanes x) { return abs(x) == Lanes(std::numeric_limits<float>::infinity()); }
inline Truth is_finite(Lanes x) { return abs(x) <= Lanes(std::numeric_limits<float>::max()); }

inline Lanes select(Truth c, Lanes a, Lanes b) {
  const NativeNode& condition = (*nodes)[size_t(c.node)];
  NativeNode node{.op = Op::kSelect, .operands = {c.node, a.node, b.node, -1}};
  if (condition.op == Op::kCompare)
    node = {.op = Op::kCompareSelect,
            .mode = condition.mode,
            .operands = {condition.operands[0], condition.operands[1], a.node, b.node}};
  return Lanes::of(record(node));
}
inline Lanes choose(Truth c, Lanes a, Lanes b) { return select(c, a, b); }
template <Lazy F>
inline Lanes select(Truth c, Lanes a, F b) {
  return select(c, a, b());
}
inline Lanes select_or_zero(Truth c, Lanes a) { return Lanes::of(record(Op::kAnd, c.node, a.node)); }
inline Lanes maximum(Lanes x, Lanes y) { return select(is_nan(x), x, Lanes::of(record(Op::kMax, x.node, y.node))); }
inline Lanes minimum(Lanes x, Lanes y) { return select(is_nan(x), x, Lanes::of(record(Op::kMin, x.node, y.node))); }

template <int k>
struct Listed;
constexpr int kBefore = __COUNTER__;

}  // namespace pg::cpu::recorded
#include "tensor/kernels/formulas-inl.h"

namespace pg::cpu {
namespace {

using namespace recorded;
using Indices = std::make_integer_sequence<int, __COUNTER__ - kBefore - 1>;

// --- Formulas: of the operands x, y and z, which are nodes ---

template <class F, const FormulaRow& row, class V>
int32_t apply(const double* params, V x, V y, V z) {
  const F f = [&] {
    if constexpr (std::is_constructible_v<F, const double*>)
      return F(params);
    else
      return F{};
  }();
  if constexpr (row.inputs == 1)
    return f(x).node;
  else if constexpr (row.inputs == 2)
    return f(x, y).node;
  else
    return f(x, y, z).node;
}

template <int k>
int32_t apply_listed([[maybe_unused]] bool bools, [[maybe_unused]] const double* params, [[maybe_unused]] int32_t x,
                     [[maybe_unused]] int32_t y, [[maybe_unused]] int32_t z) {
  using F = typename Listed<k>::F;
  constexpr const FormulaRow& row = Listed<k>::row;
  if constexpr (row.lanes && !row.condition) {
    if constexpr (row.on_bools())
      if (bools) return apply<F, row, Truth>(params, {x}, {y}, {z});
    if constexpr (row.on_floats()) return apply<F, row, Lanes>(params, Lanes::of(x), Lanes::of(y), Lanes::of(z));
  }
  return -1;
}

struct Formula {
  int (*apply)(bool bools, const double* params, int32_t x, int32_t y, int32_t z);
  int inputs;
};
template <int... k>
Formula formula_at(int index, std::integer_sequence<int, k...>) {
  static constexpr Formula kFormulas[] = {{apply_listed<k>, Listed<k>::row.inputs}...};
  return kFormulas[index];
}

struct FormulaCode {
  int row, operand;
  bool bools;
};
std::optional<FormulaCode> formula_of(ChainOp op) {
  const int code = int(op) - int(ChainOp::kFormula);
  if (code < 0) return std::nullopt;
  return FormulaCode{code / 4, code % 2, code % 4 >= 2};
}

// --- Pairs of ops in one step ---

struct Parts {
  ChainOp first, second;
  bool joined;  // the first is applied to a and b, the second to the accumulator and that
};
std::optional<Parts> parts_of(ChainOp op) {
#define X(one, two) \
  if (op == ChainOp::k##one##Then##two) return Parts{ChainOp::k##one, ChainOp::k##two, false};
  PERIGEE_CHAIN_PAIRS(X)
#undef X
#define X(one, two) \
  if (op == ChainOp::kJoin##one##By##two) return Parts{ChainOp::k##one, ChainOp::k##two, true};
  PERIGEE_CHAIN_JOINS(X)
#undef X
  return std::nullopt;
}

bool is_store(ChainOp op) { return op >= ChainOp::kStore && op <= ChainOp::kStream; }
bool adds_up(ChainOp op) { return op == ChainOp::kAddUp || op == ChainOp::kAddSquares; }
bool is_load(ChainOp op) { return op >= ChainOp::kLoad && op <= ChainOp::kLoadByte; }
NativeKind kind_of(ChainOp op) { return NativeKind(int(op) - int(is_load(op) ? ChainOp::kLoad : ChainOp::kStore)); }

// Operands in memory that the step reads.
int operands_of(ChainOp op) {
  if (is_load(op) || adds_up(op)) return 1;
  if (is_store(op) || op == ChainOp::kEnd) return 0;
  if (const auto formula = formula_of(op)) return formula->row < kMaxSpans ? span_at(formula->row).inputs - 1 : -1;
  if (parts_of(op)) return 2;
  switch (op) {
#define X(name)          \
  case ChainOp::k##name: \
    return 0;
    PERIGEE_CHAIN_UNARY(X)
#undef X
#define X(name)          \
  case ChainOp::k##name: \
    return 1;
    PERIGEE_CHAIN_BINARY(X)
#undef X
    default:
      return 2;
  }
}

class Tracer {
 public:
  Tracer(std::span<const Step> chain, size_t begin, size_t end) : chain_(chain), begin_(begin), end_(end) {
    nodes = &graph_.nodes;
    if (reads_accumulator(chain[begin])) accumulator_ = record(NativeNode{.op = Op::kAccumulator});
  }

  NativeGraph trace() {
    for (size_t i = begin_; i < end_; ++i) step(i);
    if (end_ < chain_.size() && reads_accumulator(chain_[end_])) graph_.result = accumulator_;
    return std::move(graph_);
  }

 private:
  void step(size_t i) {
    const Step& s = chain_[i];
    if (s.op == ChainOp::kEnd) return;
    if (is_store(s.op)) return store(i);
    if (adds_up(s.op)) return add_up(s);
    const auto parts = parts_of(s.op);
    if (!parts) {
      accumulator_ = apply(s.op, s, accumulator_);
    } else if (parts->joined) {
      const int32_t a = operand(s, false, NativeKind::kFloat);
      const int32_t joined = arithmetic(parts->first, a, operand(s, true, NativeKind::kFloat));
      accumulator_ = arithmetic(parts->second, accumulator_, joined);
    } else {
      const int32_t a = operand(s, false, NativeKind::kFloat);
      accumulator_ = parts->first == ChainOp::kLoad ? a : arithmetic(parts->first, accumulator_, a);
      accumulator_ = arithmetic(parts->second, accumulator_, operand(s, true, NativeKind::kFloat));
    }
  }

  static int32_t arithmetic(ChainOp op, int32_t x, int32_t a) {
    switch (op) {
      case ChainOp::kAdd:
        return record(Op::kAdd, x, a);
      case ChainOp::kSub:
        return record(Op::kSub, x, a);
      case ChainOp::kSubOf:
        return record(Op::kSub, a, x);
      default:
        return record(Op::kMul, x, a);
    }
  }

  int32_t apply(ChainOp op, const Step& s, int32_t x) {
    if (is_load(op)) return operand(s, false, kind_of(op));
    if (const auto formula = formula_of(op)) {
      const Formula f = formula_at(formula->row, Indices());
      const NativeKind kind = formula->bools ? NativeKind::kBool : NativeKind::kFloat;
      const int32_t a = f.inputs > 1 ? operand(s, false, kind) : -1, b = f.inputs > 2 ? operand(s, true, kind) : -1;
      const bool swapped = f.inputs == 2 && formula->operand == 1;
      return f.apply(formula->bools, s.params, swapped ? a : x, swapped ? x : a, b);
    }
    switch (op) {
      case ChainOp::kSquare:
        return record(Op::kMul, x, x);
      case ChainOp::kCube:
        return record(Op::kMul, record(Op::kMul, x, x), x);
      case ChainOp::kRoot:
        return Root()(Lanes::of(x)).node;
      case ChainOp::kFromBool:
        return record(Op::kAnd, x, Lanes(1).node);
      case ChainOp::kNonZero:
        return nonzero(Lanes::of(x)).node;
      case ChainOp::kWhere: {
        const int32_t condition = operand(s, false, NativeKind::kBool);
        return select(Truth{condition}, Lanes::of(x), Lanes::of(operand(s, true, NativeKind::kFloat))).node;
      }
      case ChainOp::kWhereOf: {
        const int32_t condition = operand(s, false, NativeKind::kBool);
        return select(Truth{condition}, Lanes::of(operand(s, true, NativeKind::kFloat)), Lanes::of(x)).node;
      }
      case ChainOp::kWhereMask: {
        const int32_t a = operand(s, false, NativeKind::kFloat);
        return select(Truth{x}, Lanes::of(a), Lanes::of(operand(s, true, NativeKind::kFloat))).node;
      }
      default:
        return arithmetic(op, x, operand(s, false, NativeKind::kFloat));
    }
  }

  // Rounded to nearest even; NaN stays one.
  static int32_t rounded_to_bfloat16(int32_t x) {
    const int32_t odd = record(Op::kAnd, record(Op::kShiftRight, x, -1, 16), constant(1));
    const int32_t rounded = record(Op::kAddInts, x, record(Op::kAddInts, odd, constant(0x7fff)));
    const int32_t quiet = record(Op::kOr, x, constant(0x400000));
    const Lanes chosen = select(is_nan(Lanes::of(x)), Lanes::of(quiet), Lanes::of(rounded));
    return record(Op::kAnd, chosen.node, constant(0xffff0000u));
  }

  int32_t operand(const Step& s, bool second, NativeKind kind) {
    const int32_t cell = second ? s.b : s.a;
    const bool scalar = second ? s.b_scalar : s.a_scalar, moves = (second ? s.b_mask : s.a_mask) != 0;
    if (!scalar)
      if (const auto found = stored_.find(cell); found != stored_.end()) return found->second;
    return record(
        NativeNode{.op = scalar ? Op::kScalar : Op::kLoad, .kind = kind, .moves = !scalar && moves, .cell = cell});
  }

  void add_up(const Step& s) {
    const int32_t sum = record(NativeNode{.op = Op::kLoad, .cell = s.a});
    const int32_t more = record(s.op == ChainOp::kAddUp ? Op::kAdd : Op::kSquareAdd, accumulator_, sum);
    record(NativeNode{.op = Op::kStore, .operands = {more, -1, -1, -1}, .cell = s.a});
  }

  // The value is in memory as it is, but for halves and streams, which nothing reads.
  void store(size_t i) {
    const Step& s = chain_[i];
    stored_[s.a] = accumulator_;
    if (s.a_mask == 0 && !read_later(i)) return;
    const bool streams = s.op == ChainOp::kStream;
    const NativeKind kind = streams ? NativeKind::kFloat : kind_of(s.op);
    int32_t value = accumulator_;
    if (kind == NativeKind::kBFloat16) value = rounded_to_bfloat16(value);
    record(NativeNode{.op = streams ? Op::kStream : Op::kStore,
                      .kind = kind,
                      .moves = s.a_mask != 0,
                      .operands = {value, -1, -1, -1},
                      .cell = s.a});
  }

  // Whether a step after the run reads the block's memory that step i writes.
  bool read_later(size_t i) const {
    for (size_t k = i + 1; k < chain_.size(); ++k) {
      const Step& s = chain_[k];
      if (is_store(s.op)) {
        if (s.a == chain_[i].a) return false;
        continue;
      }
      const int operands = operands_of(s.op);
      if (k < end_ || operands == 0) continue;
      if (s.a == chain_[i].a || (operands != 1 && s.b == chain_[i].a)) return true;
    }
    return false;
  }

  NativeGraph graph_;
  const std::span<const Step> chain_;
  const size_t begin_, end_;
  int32_t accumulator_ = -1;
  std::map<int32_t, int32_t> stored_;  // the value of each cell that was written
};

}  // namespace

bool is_native(const Step& step) {
  const auto formula = formula_of(step.op);
  if (formula) return formula->row < kMaxSpans;
  return step.op != ChainOp::kRoundHalf && step.op != ChainOp::kRoundBFloat16;  // their steps are as fast
}

bool reads_accumulator(const Step& step) {
  if (step.op == ChainOp::kEnd || is_load(step.op)) return false;
  const auto parts = parts_of(step.op);
  return !parts || parts->joined || parts->first != ChainOp::kLoad;
}

NativeGraph trace_native(std::span<const Step> chain, size_t begin, size_t end) {
  return Tracer(chain, begin, end).trace();
}

}  // namespace pg::cpu
