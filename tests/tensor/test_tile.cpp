// The parts of the tiled vector machine: chains, gathering, layouts, generated code.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "tensor/cpu/pointwise/tile_gather.h"
#include "tensor/cpu/pointwise/tile_machine.h"
#include "tensor/cpu/pointwise/tile_simd.h"
#include "tensor/line_time.h"
#include "tensor/parallel.h"

using namespace pg;
using namespace pg::cpu;

namespace {

ChainOp formula(const char* op, bool bools = false) { return formula_step(find_span(op)->index, bools, 0); }

Step step(ChainOp op, int32_t a = 0, bool scalar = false, int32_t b = 0) {
  Step s;
  s.a = a;
  s.b = b;
  s.a_scalar = scalar;
  set_code(s, op);
  return s;
}

TileValue input(int32_t index, DType dtype = DType::kFloat32) {
  TileValue v;
  v.index = index;
  v.dtype = dtype;
  return v;
}
TileValue constant(double number) {
  TileValue v;
  v.kind = TileValue::Kind::kConstant;
  v.number = number;
  return v;
}
TileValue span(const char* op, std::initializer_list<int32_t> operands) {
  TileValue v;
  v.kind = TileValue::Kind::kOp;
  v.op = &registry().require(op);
  for (int32_t o : operands) v.operands[v.count++] = o;
  return v;
}

std::vector<TileLayout::Access> accesses(const TileLayout& l) { return {l.access.begin(), l.access.end()}; }

std::vector<float> ramp(int64_t n, float first = 0) {
  std::vector<float> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

}  // namespace

TEST_CASE("tile: a chain of any length writes only its elements") {
  for (const bool repeatable : {false, true})
    for (int64_t n = 1; n < 700; n += n < 300 ? 1 : 37) {
      std::vector<float> x = ramp(n), y = ramp(n, 5), out(size_t(n) + 2, -1);
      float two = 2;
      char* memory[] = {reinterpret_cast<char*>(x.data()), reinterpret_cast<char*>(y.data()),
                        reinterpret_cast<char*>(out.data() + 1), reinterpret_cast<char*>(&two)};
      const Step steps[] = {step(ChainOp::kLoad, 0),     step(ChainOp::kMul, 3, true), step(ChainOp::kSubOf, 1),
                            step(formula("maximum"), 0), step(ChainOp::kStore, 2),     step(ChainOp::kEnd)};
      run_chain(steps, memory, n, repeatable);
      bool right = out.front() == -1 && out.back() == -1;
      for (size_t i = 0; i < size_t(n); ++i) right &= out[i + 1] == std::max(y[i] - 2 * x[i], x[i]);
      REQUIRE(right);
    }
}

TEST_CASE("tile: chains handle halves, bools and masks") {
  for (const int64_t n : {1, 3, 130, 300}) {
    std::vector<Half> h;
    std::vector<BFloat16> b;
    for (int64_t i = 0; i < n; ++i) h.push_back(Half(float(i) / 3)), b.push_back(BFloat16(float(n - i)));
    std::vector<uint8_t> mask(size_t(n) + 1, 7);
    std::vector<Half> out(static_cast<size_t>(n));
    char* memory[] = {reinterpret_cast<char*>(h.data()), reinterpret_cast<char*>(b.data()),
                      reinterpret_cast<char*>(mask.data()), reinterpret_cast<char*>(out.data()), nullptr};
    std::vector<float> wide(static_cast<size_t>(n));
    memory[4] = reinterpret_cast<char*>(wide.data());
    const Step steps[] = {step(ChainOp::kLoadHalf, 0),
                          step(ChainOp::kStore, 4),
                          step(ChainOp::kLoadBFloat16, 1),
                          step(formula("lt"), 4),
                          step(ChainOp::kStoreBool, 2),
                          step(formula("logical_not", true)),
                          step(formula("logical_and", true), 2),
                          step(formula("logical_or", true), 2),
                          step(ChainOp::kFromBool),
                          step(ChainOp::kWhere, 2, false, 4),
                          step(ChainOp::kStoreHalf, 3),
                          step(ChainOp::kEnd)};
    run_chain(steps, memory, n);
    CHECK(mask.back() == 7);
    for (size_t i = 0; i < size_t(n); ++i) {
      const bool less = float(b[i]) < float(h[i]);
      REQUIRE(mask[i] == (less ? 1 : 0));
      REQUIRE(float(out[i]) == (less ? 1.0f : float(h[i])));
    }
  }
}

TEST_CASE("tile: gathering agrees with a loop over indices") {
  std::vector<int32_t> data(2000);
  std::iota(data.begin(), data.end(), 0);
  for (const int64_t inner : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40})
    for (const Dims& strides : {Dims{inner * 4, inner, 1}, Dims{1, 3, 12}, Dims{0, inner, 1}, Dims{7, 0, 0},
                                Dims{inner * 8, inner * 2, 2}, Dims{3 * inner + 2, 3, 3}, Dims{0, 60, 5}, Dims{0, 0, 0},
                                Dims{90, 45, 1}, Dims{45, 200, 4}, Dims{50, 0, 1}, Dims{1, 50, -1}}) {
      const Dims shape{3, 4, inner};
      const int64_t first = 60, all = 12 * inner;
      for (const bool copies : {false, true}) {
        const Gather gather(reinterpret_cast<const char*>(&data[first]), 4, shape, strides, copies);
        for (const auto& [from, n] : {std::pair<int64_t, int64_t>{0, all}, {1, 1}, {all / 5, all / 2}, {all - 1, 1}}) {
          std::vector<int32_t> tile(size_t(n) + 1, -1);
          const char* const read = gather.read(from, n, reinterpret_cast<char*>(tile.data()));
          const auto* const out = reinterpret_cast<const int32_t*>(read);
          if (copies) REQUIRE(out == tile.data());
          REQUIRE(tile.back() == -1);
          for (int64_t i = 0; i < n; ++i) {
            const int64_t p = from + i, plane = p / (4 * inner), row = p / inner % 4;
            REQUIRE(out[i] == first + plane * strides[0] + row * strides[1] + p % inner * strides[2]);
          }
        }
      }
    }
}

TEST_CASE("tile: layouts of views have their strides") {
  using Access = TileLayout::Access;
  const Type type{DType::kFloat32, {}, {300, 200}};
  const Dims columns = {512, 1}, transposed = {1, 300}, rows = {0, 1}, one = {0, 0};
  const View in[] = {{&type, &columns}, {&type, &transposed}, {&type, &rows}, {&type, &one}};
  const TileLayout layout(type.shape, in);
  CHECK(layout.shape == type.shape);
  CHECK(accesses(layout) == std::vector<Access>{Access::kRun, Access::kGather, Access::kRun, Access::kSingle});
  CHECK(layout.offset(0, 201) == 513);
  CHECK(layout.offset(1, 201) == 301);
  const TileLayout merged(type.shape, std::span(in).subspan(3));
  CHECK(merged.shape == Dims{60000});
}

TEST_CASE("tile: layouts merge dims except where an input repeats") {
  using Access = TileLayout::Access;
  TileBody body;
  body.space = {4, 6, 200};
  body.inputs = {{DType::kFloat32, {4, 6, 200}}, {DType::kFloat32, {}}};
  const TileLayout plain(body);
  CHECK(plain.shape == Dims{4800});
  CHECK_FALSE(plain.runs);
  body.inputs.push_back({DType::kFloat32, {200}});
  body.inputs.push_back({DType::kFloat32, {4, 6, 1}});
  const TileLayout runs(body);
  CHECK(runs.shape == Dims{24, 200});
  CHECK(runs.runs);
  CHECK(accesses(runs) == std::vector<Access>{Access::kLinear, Access::kSingle, Access::kRun, Access::kColumn});
  CHECK(runs.offset(3, 200 * 5 + 17) == 5);
  body.space = {4, 6, 20};
  body.inputs = {{DType::kFloat32, {4, 6, 20}}, {DType::kFloat32, {20}}, {DType::kFloat32, {6, 1}}};
  const TileLayout gathered(body);
  CHECK(accesses(gathered) == std::vector<Access>{Access::kLinear, Access::kGather, Access::kGather});
  CHECK(gathered.periodic(1));
  CHECK_FALSE(gathered.periodic(2));
}

TEST_CASE("tile: values pass through the accumulator, and registers are reused") {
  TileBody body;
  body.space = {1000};
  body.inputs = {{DType::kFloat32, {1000}}, {DType::kFloat32, {1000}}};
  body.values = {input(0), input(1), constant(3)};
  body.values.push_back(span("mul", {0, 1}));
  body.values.push_back(span("add", {3, 2}));
  for (int32_t i = 0; i < 20; ++i) body.values.push_back(span("tanh", {int32_t(body.values.size()) - 1}));
  body.outputs = {{int32_t(body.values.size()) - 1, DType::kFloat32, false}};
  const TileProgram chain = compile_tiles(body, TileLayout(body));
  CHECK(chain.levels[2].pure);
  CHECK(chain.levels[2].instructions.size() == 1);
  CHECK(chain.levels[2].steps.size() == 2 + 20 + 2);  // load and product, sum, the functions, a store, the end
  CHECK(chain.local.empty());
  CHECK(chain.levels[0].instructions.empty());

  // Each value is used twice: one register at a time is enough.
  body.values.resize(4);
  for (int32_t i = 0; i < 20; ++i) {
    const int32_t last = int32_t(body.values.size()) - 1;
    body.values.push_back(span("exp", {last}));
    body.values.push_back(span("add", {last + 1, last}));
  }
  body.outputs[0].value = int32_t(body.values.size()) - 1;
  const TileProgram pairs = compile_tiles(body, TileLayout(body));
  CHECK(pairs.levels[2].pure);
  CHECK(pairs.local.size() == 2);  // one of them belongs to the streaming code
}

TEST_CASE("tile: sums of products need no register") {
  TileBody body;
  body.space = {1000};
  for (int32_t i = 0; i < 4; ++i) {
    body.inputs.push_back({DType::kFloat32, {1000}});
    body.values.push_back(input(i));
  }
  body.values.push_back(span("mul", {0, 1}));
  body.values.push_back(span("mul", {2, 3}));
  body.values.push_back(span("sub", {4, 5}));
  body.outputs = {{6, DType::kFloat32, false}};
  const TileProgram program = compile_tiles(body, TileLayout(body));
  CHECK(program.levels[2].steps.size() == 4);  // load and product, product and difference, a store, the end
  CHECK(program.local.empty());
}

TEST_CASE("tile: programs with many registers have smaller tiles") {
  TileBody body;
  body.space = {10000};
  body.inputs = {{DType::kFloat32, {10000}}};
  body.values = {input(0)};
  std::vector<int32_t> logs;
  for (int32_t i = 0; i < 24; ++i) {
    body.values.push_back(constant(i + 1));
    body.values.push_back(span("add", {0, int32_t(body.values.size()) - 1}));
    body.values.push_back(span("lgamma", {int32_t(body.values.size()) - 1}));
    logs.push_back(int32_t(body.values.size()) - 1);
    body.outputs.push_back({logs.back(), DType::kFloat16, false});
  }
  int32_t sum = logs[0];
  for (int32_t i = 1; i < 24; ++i) {
    body.values.push_back(span("sub", {logs[size_t(24 - i)], sum}));
    sum = int32_t(body.values.size()) - 1;
  }
  for (int32_t l : logs) {
    body.values.push_back(span("mul", {sum, l}));
    sum = int32_t(body.values.size()) - 1;
  }
  body.outputs.push_back({sum, DType::kFloat32, false});
  const TileProgram program = compile_tiles(body, TileLayout(body));
  CHECK_FALSE(program.levels[2].pure);
  CHECK(program.tile < kTile);
  CHECK(program.local_bytes <= 64 << 10);
}

TEST_CASE("tile: several threads can run one machine at once") {
  TileBody body;
  body.space = {3000};
  body.inputs = {{DType::kFloat32, {3000}}, {DType::kFloat32, {}}};
  body.values = {input(0), input(1), span("exp", {1}), span("mul", {0, 2}), span("asinh", {3}), span("add", {4, 3})};
  body.outputs = {{5, DType::kFloat32, false}};
  const TileMachine machine(body);
  const Type vector{DType::kFloat32, {}, {3000}}, scalar{DType::kFloat32, {}, {}};
  const Dims one{1}, none{};
  std::vector<float> x = ramp(3000, 1);
  std::atomic<int> wrong{0};
  parallel_for(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float s = float(t) / 64;
      std::vector<float> out(3000);
      const View in[] = {{&vector, &one, x.data()}, {&scalar, &none, &s}}, to[] = {{&vector, &one, out.data()}};
      machine.run(in, to, nullptr);
      for (size_t i = 0; i < 3000; i += 7) {
        const double want = double(x[i]) * std::exp(double(s));
        wrong += std::fabs(out[i] - (want + std::asinh(want))) > 1e-3;
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("tile: one op is shared by the size of its arrays, several are by their work too") {
  const int64_t before = line_time.picoseconds();
  line_time.set(25'000);
  const auto shared = [](int ops, int64_t n) {
    TileBody body;
    body.space = {n};
    body.inputs = {{DType::kFloat32, {n}}};
    body.values = {input(0)};
    for (int32_t i = 0; i < ops; ++i) body.values.push_back(span("tanh", {i}));
    body.outputs = {{ops, DType::kFloat32, false}};
    const TileLayout layout(body);
    return is_shared(TiledBody(body, layout), n);
  };
  CHECK(!shared(1, 16 << 10));
  CHECK(shared(1, 64 << 10));
  CHECK(shared(4, 16 << 10));
  CHECK(!shared(4, 256));
  line_time.set(1500);
  CHECK(shared(1, 16 << 10));
  CHECK(!shared(1, 256));
  line_time.set(before);
}
