// Machine code of chains computes the bits of their steps.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "tensor/cpu/isa.h"
#include "tensor/cpu/pointwise/native_registers.h"
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/cpu/pointwise/native.h"

using namespace pg;
using namespace pg::cpu;

namespace {

constexpr int64_t kCount = 300;  // elements: two blocks and a rest
constexpr int kInputs = 3;       // of each kind
constexpr int kLocals = 3;       // cells of a block's memory for floats, and as many for bools
constexpr int kOutputs = 3;      // of each kind
constexpr int kSums = 2;

using Kind = NativeKind;
constexpr Kind kKinds[] = {Kind::kFloat, Kind::kHalf, Kind::kBFloat16, Kind::kBool, Kind::kByte};
constexpr int kLoads = 5, kStores = 4;  // kinds that are loaded, and stored

// The table of addresses: inputs of each kind, one-element inputs of each kind, local cells, outputs of each kind,
// sums.
int32_t input_cell(Kind kind, int i) { return int(kind) * kInputs + i; }
int32_t single_cell(Kind kind, int i) { return kLoads * kInputs + input_cell(kind, i); }
int32_t local_cell(bool bools, int i) { return 2 * kLoads * kInputs + int(bools) * kLocals + i; }
int32_t output_cell(Kind kind, int i) { return 2 * kLoads * kInputs + 2 * kLocals + int(kind) * kOutputs + i; }
int32_t sum_cell(int i) { return 2 * kLoads * kInputs + 2 * kLocals + kStores * kOutputs + i; }
constexpr int kCells = 2 * kLoads * kInputs + 2 * kLocals + kStores * kOutputs + kSums;

float any_number(std::mt19937& rng) {
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-40f, -3e38f, 65520.0f, 0.5f, 2.5f};
  return rng() % 4 ? float(int(rng() % 2001) - 1000) / 64 : special[rng() % 12];
}

class Memory {
 public:
  explicit Memory(uint32_t seed) : cells_(kCells), table_(kCells) {
    std::mt19937 rng(seed);
    for (auto& c : cells_) c.assign(kCount * 4 + 64, 0x55);
    for (const Kind kind : kKinds)
      for (int i = 0; i < kInputs; ++i)
        for (int64_t k = 0; k < kCount; ++k) {
          put(kind, input_cell(kind, i), k, rng);
          if (k == 0) put(kind, single_cell(kind, i), 0, rng);
        }
    for (int i = 0; i < kSums; ++i) cells_[size_t(sum_cell(i))].assign(kCount * 4 + 64, 0);
    for (int c = 0; c < kCells; ++c) table_[size_t(c)] = reinterpret_cast<char*>(cells_[size_t(c)].data());
  }
  void run(const std::vector<Step>& steps, int64_t n, bool repeatable) {
    run_chain(steps.data(), table_.data(), n, repeatable);
  }
  // Whether all outputs of the kind are the same, any NaN for any other.
  bool same(const Memory& other, Kind kind) const {
    for (int i = 0; i < kOutputs; ++i)
      if (!same(other, kind, output_cell(kind, i))) return false;
    for (int i = 0; kind == Kind::kFloat && i < kSums; ++i)
      if (!same(other, kind, sum_cell(i))) return false;
    return true;
  }

 private:
  bool same(const Memory& other, Kind kind, int32_t cell) const {
    const uint8_t *a = cells_[size_t(cell)].data(), *b = other.cells_[size_t(cell)].data();
    for (int64_t k = 0; k < kCount + 8; ++k)
      if (number(kind, a, k) != number(kind, b, k)) return false;
    return true;
  }
  // The bits of an element; 1 for any NaN.
  static uint32_t number(Kind kind, const uint8_t* from, int64_t k) {
    if (kind == Kind::kBool) return from[k];
    if (kind == Kind::kFloat) return number<float, uint32_t>(from, k);
    return kind == Kind::kHalf ? number<Half, uint16_t>(from, k) : number<BFloat16, uint16_t>(from, k);
  }
  template <class T, class Bits>
  static uint32_t number(const uint8_t* from, int64_t k) {
    T x;
    Bits bits;
    std::memcpy(&x, from + k * int64_t(sizeof(T)), sizeof(T));
    std::memcpy(&bits, &x, sizeof(T));
    return std::isnan(float(x)) ? 1 : bits;
  }
  void put(Kind kind, int32_t cell, int64_t k, std::mt19937& rng) {
    uint8_t* at = cells_[size_t(cell)].data();
    const float x = any_number(rng);
    const uint16_t half = Half(x).bits, bfloat = BFloat16(x).bits;
    if (kind == Kind::kFloat) std::memcpy(at + k * 4, &x, 4);
    if (kind == Kind::kHalf) std::memcpy(at + k * 2, &half, 2);
    if (kind == Kind::kBFloat16) std::memcpy(at + k * 2, &bfloat, 2);
    if (kind == Kind::kBool) at[k] = rng() % 2;
    if (kind == Kind::kByte) at[k] = uint8_t(rng());
  }
  std::vector<std::vector<uint8_t>> cells_;
  std::vector<char*> table_;
};

// A chain of random steps of the right types.
class RandomChain {
 public:
  RandomChain(uint32_t seed, int length) : rng_(seed) {
    load(Kind(rng_() % kLoads));
    while (int(steps.size()) < length) step();
    store(bools_ ? Kind::kBool : Kind::kFloat);
    push(ChainOp::kEnd);
  }
  std::vector<Step> steps;

 private:
  struct Operand {
    int32_t cell, mask;
    bool scalar;
  };
  static constexpr Operand kNone = {0, -1, false};

  void push(ChainOp op, Operand a = kNone, Operand b = kNone) {
    Step s;
    s.a = a.cell, s.a_mask = a.mask, s.a_scalar = a.scalar;
    s.b = b.cell, s.b_mask = b.mask, s.b_scalar = b.scalar;
    s.params[0] = -0.75, s.params[1] = 1.5;
    set_code(s, op);
    steps.push_back(s);
  }

  Operand operand(bool bools) {
    const Kind kind = bools ? Kind::kBool : Kind::kFloat;
    const int i = int(rng_() % kInputs);
    const uint32_t choice = rng_() % 4;
    if (choice == 0) return {single_cell(kind, i), -1, true};
    if (choice == 1 && written_[bools] >> i & 1) return {local_cell(bools, i), 0, false};
    return {input_cell(kind, i), -1, false};
  }

  void load(Kind kind) {
    const ChainOp ops[] = {ChainOp::kLoad, ChainOp::kLoadHalf, ChainOp::kLoadBFloat16, ChainOp::kLoadBool,
                           ChainOp::kLoadByte};
    const bool scalar = rng_() % 3 == 0;
    const int i = int(rng_() % kInputs);
    push(ops[int(kind)], {scalar ? single_cell(kind, i) : input_cell(kind, i), -1, scalar});
    bools_ = kind == Kind::kBool;
  }

  void store(Kind kind) {
    const ChainOp ops[] = {ChainOp::kStore, ChainOp::kStoreHalf, ChainOp::kStoreBFloat16, ChainOp::kStoreBool};
    push(ops[int(kind)], {output_cell(kind, int(rng_() % kOutputs)), -1, false});
  }

  void step() {
    const uint32_t choice = rng_() % 17;
    if (choice == 16 && !bools_ && sums_ < kSums)  // each sum once
      return push(rng_() % 2 ? ChainOp::kAddUp : ChainOp::kAddSquares, {sum_cell(sums_++), 0, false});
    if (choice == 0) return load(Kind(rng_() % kLoads));
    if (choice == 1) return store(bools_ ? Kind::kBool : Kind(rng_() % 3));
    if (choice == 2 || choice == 3) {
      const int i = int(rng_() % kLocals);
      written_[bools_] |= 1u << i;
      return push(bools_ ? ChainOp::kStoreBool : ChainOp::kStore, {local_cell(bools_, i), 0, false});
    }
    if (choice == 4) {
      bools_ = !bools_;
      return push(bools_ ? ChainOp::kNonZero : ChainOp::kFromBool);
    }
    if (choice == 5) {
      if (bools_) return bools_ = false, push(ChainOp::kWhereMask, operand(false), operand(false));
      return push(rng_() % 2 ? ChainOp::kWhere : ChainOp::kWhereOf, operand(true), operand(false));
    }
    if (choice < 10 && !bools_) return plain();
    formula();
  }

  void plain() {
    const ChainOp all[] = {
#define X(name) ChainOp::k##name,
        ChainOp::kSquare, ChainOp::kCube, ChainOp::kRoundHalf, ChainOp::kRoundBFloat16,
        PERIGEE_CHAIN_BINARY(X)
#undef X
#define X(first, second) ChainOp::k##first##Then##second,
            PERIGEE_CHAIN_PAIRS(X)
#undef X
#define X(first, second) ChainOp::kJoin##first##By##second,
                PERIGEE_CHAIN_JOINS(X)
#undef X
    };
    push(all[rng_() % std::size(all)], operand(false), operand(false));
  }

  // Of a span row that has a step, one in eight of those that no machine code computes.
  void formula() {
    const bool math = !bools_ && rng_() % 8 == 0;
    const auto rows = math ? math_spans() : basic_spans();
    const SpanRow& row = rows[rng_() % rows.size()];
    if (!row.lanes || row.condition || !(bools_ ? row.on_bools() : row.on_floats())) return;
    if (row.op == std::string_view("copysign")) return;  // reads the sign of NaN, which may differ
    const int which = row.inputs == 2 ? int(rng_() % 2) : 0;
    push(formula_step(row.index, bools_, which), operand(bools_), operand(bools_));
    const std::string_view op = row.op;
    for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
                             "logical_not", "isnan", "isinf", "isfinite"})
      if (op == name) bools_ = true;
  }

  std::mt19937 rng_;
  bool bools_ = false;
  int sums_ = 0;
  uint32_t written_[2] = {};  // local cells
};

// Whether vector registers 0 to 15 hold data in their upper halves, as far as the processor tells (XGETBV with ECX 1).
bool upper_halves_in_use() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a & 4)) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low & (1u << 2 | 1u << 6);  // the upper halves of 256 and of 512 bits
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("native: chains leave the upper halves of vector registers clear") {
  if (std::getenv("PERIGEE_SANITIZED")) {  // which clear the marks of a function's stack by vectors when it returns
    MESSAGE("skipped: the sanitizers use vectors themselves");
    return;
  }
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::vector<Step> steps = RandomChain(seed, 20).steps;
    const auto native = seed % 2 ? compile_native(steps) : nullptr;
    Memory memory(seed);
    for (const int64_t n : {int64_t(1), int64_t(9), kCount}) {
      memory.run(steps, n, false);
      REQUIRE_FALSE(upper_halves_in_use());  // else libm takes many times as long from here on
    }
  }
}

TEST_CASE("native: random chains compute the bits of their steps") {
  size_t compiled = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    const RandomChain chain(seed, 3 + int(seed % 60));
    std::vector<Step> fast = chain.steps;
    const auto native = compile_native(fast);
    compiled += native != nullptr;
    const bool repeatable = seed % 2;
    for (const int64_t n : {int64_t(1), int64_t(9), kCount}) {
      Memory expected(seed), got(seed);
      expected.run(chain.steps, n, repeatable);
      got.run(fast, n, repeatable);
      for (const Kind kind : std::span(kKinds).first(kStores)) {
        CAPTURE(int(kind));
        REQUIRE(got.same(expected, kind));
      }
    }
  }
  MESSAGE(compiled << " of 3000 chains have machine code");
  if (isa() < Isa::kAvx2) CHECK(compiled == 0);
}

TEST_CASE("native: a run that needs too many registers is cut") {
  // Sums of products of everything, with all products kept until the end.
  std::vector<Step> steps;
  const auto push = [&](ChainOp op, int32_t a, bool local) {
    Step s;
    s.a = a;
    s.a_mask = local ? 0 : -1;
    set_code(s, op);
    steps.push_back(s);
  };
  constexpr int kValues = 40;
  for (int i = 0; i < kValues; ++i) {
    push(ChainOp::kLoad, 0, false);
    push(ChainOp::kMul, i % 2, false);
    for (int k = 0; k < i; ++k) push(ChainOp::kAdd, 1, false);
    push(ChainOp::kStore, 3 + i, true);
  }
  push(ChainOp::kLoad, 3, true);
  for (int i = 1; i < kValues; ++i) push(i % 3 ? ChainOp::kAdd : ChainOp::kSubOf, 3 + i, true);
  push(ChainOp::kStore, 2, false);
  push(ChainOp::kEnd, 0, false);

  std::vector<float> x(kCount), y(kCount), locals(size_t(kValues * chain_block())), outs[2];
  std::vector<char*> table(3 + kValues);
  for (int64_t i = 0; i < kCount; ++i) x[size_t(i)] = float(i) / 7, y[size_t(i)] = float(i % 13) - 6;
  table[0] = reinterpret_cast<char*>(x.data());
  table[1] = reinterpret_cast<char*>(y.data());
  for (int i = 0; i < kValues; ++i) table[size_t(3 + i)] = reinterpret_cast<char*>(&locals[size_t(i * chain_block())]);
  std::vector<Step> fast = steps;
  const auto native = compile_native(fast);
  for (int k = 0; k < 2; ++k) {
    outs[k].assign(kCount, -1);
    table[2] = reinterpret_cast<char*>(outs[k].data());
    run_chain(k ? fast.data() : steps.data(), table.data(), kCount);
  }
  CHECK(outs[0] == outs[1]);
}

TEST_CASE("native: memory of the block that nothing reads is not written") {
  std::vector<Step> steps;
  const auto push = [&](ChainOp op, int32_t a, int32_t mask) {
    Step s;
    s.a = a, s.a_mask = mask;
    set_code(s, op);
    steps.push_back(s);
  };
  push(ChainOp::kLoad, 0, -1);
  push(ChainOp::kMul, 0, -1);
  push(ChainOp::kStore, 1, 0);
  push(ChainOp::kAdd, 0, -1);
  push(ChainOp::kMul, 1, 0);
  push(ChainOp::kStore, 2, -1);
  push(ChainOp::kEnd, 0, -1);
  const NativeGraph graph = trace_native(steps, 0, steps.size());
  int writes = 0;
  for (const NativeNode& n : graph.nodes) writes += n.writes();
  CHECK(writes == 1);
  CHECK(graph.result == -1);
  const auto where = assign_registers(graph, 15);
  REQUIRE(where);
  CHECK(where->group == 4);
}
