// The CUDA form of pointwise formulas. scripts/checks/cuda runs the test cases that are skipped here: the source that
// one writes is compiled for the host, and the other compares its results with those of the CPU's kernels.
#include <doctest/doctest.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/kernels/cuda_source.h"

namespace {

using namespace pg;
using Kind = TileValue::Kind;

struct Body : TileBody {
  int32_t input(DType dtype, Dims shape) {
    inputs.push_back({dtype, shape});
    return add({.kind = Kind::kInput, .dtype = dtype, .index = int32_t(inputs.size()) - 1});
  }
  int32_t constant(DType dtype, double number) {
    return add({.kind = Kind::kConstant, .dtype = dtype, .number = number});
  }
  int32_t convert(int32_t from, DType to, DType rounded = DType::kBool) {
    return add({.kind = Kind::kConvert, .dtype = to, .rounded = rounded, .count = 1, .operands = {from, -1, -1}});
  }
  int32_t op(const char* name, std::vector<int32_t> operands, DType compute, DType rounded = DType::kBool) {
    const OpDef& def = registry().require(name);
    TileValue v{
        .kind = Kind::kOp, .rounded = rounded, .compute = compute, .count = int8_t(operands.size()), .op = &def};
    v.dtype = def.result == Result::kBool ? DType::kBool : compute;
    std::copy(operands.begin(), operands.end(), v.operands);
    if (!def.attrs.empty()) tile_params(def, make_attrs(def), v.params);
    return add(v);
  }
  void output(int32_t value, DType dtype, bool single = false) { outputs.push_back({value, dtype, single}); }

 private:
  int32_t add(const TileValue& v) {
    values.push_back(v);
    return int32_t(values.size()) - 1;
  }
};

// Several ops over broadcast inputs of several dtypes, halves included.
Body sample_body() {
  Body b;
  b.space = {2, 3, 4};
  const int32_t x = b.input(DType::kFloat16, {2, 3, 4}), y = b.input(DType::kFloat32, {3, 1}),
                i = b.input(DType::kInt64, {});
  const int32_t wide = b.convert(x, DType::kFloat32), scale = b.constant(DType::kFloat32, -0.5);
  const int32_t product = b.op("mul", {b.op("add", {wide, y}, DType::kFloat32), scale}, DType::kFloat32);
  const int32_t rounded = b.op("hardtanh", {product}, DType::kFloat32, DType::kBFloat16);
  const int32_t chosen = b.op("where", {b.op("gt", {wide, y}, DType::kFloat32), rounded, scale}, DType::kFloat32);
  b.output(chosen, DType::kFloat16);
  b.output(b.convert(product, DType::kInt32), DType::kInt32);
  b.output(b.op("floor_divide", {i, b.constant(DType::kInt64, 3)}, DType::kInt64), DType::kInt64, true);
  return b;
}

// x y + y and its rounded double over rows of `columns`.
Body wide_body(int64_t columns) {
  Body b;
  b.space = {3, columns};
  const int32_t x = b.input(DType::kFloat32, b.space), y = b.input(DType::kFloat32, {columns});
  const int32_t sum = b.op("add", {b.op("mul", {x, y}, DType::kFloat32), y}, DType::kFloat32);
  b.output(sum, DType::kFloat32);
  b.output(b.op("add", {sum, sum}, DType::kFloat32, DType::kFloat16), DType::kFloat16);
  return b;
}

// One pointwise op in every dtype that it computes in: for each, inputs and one output.
Body row_body(const OpDef& op) {
  constexpr int64_t kSize = 300;
  Body b;
  b.space = {kSize};
  for (int t = 0; t < kDTypeCount; ++t) {
    if (!tile_computes(op, DType(t))) continue;
    std::vector<int32_t> operands;
    for (const InputDef& in : op.inputs)
      operands.push_back(b.input(in.dtypes == kBoolOnly ? DType::kBool : DType(t), {kSize}));
    const int32_t value = b.op(op.name, operands, DType(t));
    b.output(value, b.values[size_t(value)].dtype);
  }
  return b;
}

// Conversions between all dtypes.
Body conversions() {
  constexpr int64_t kSize = 300;
  Body b;
  b.space = {kSize};
  for (int from = 0; from < kDTypeCount; ++from) {
    const int32_t x = b.input(DType(from), {kSize});
    for (int to = 0; to < kDTypeCount; ++to) {
      if (to == from) continue;
      const bool half = DType(to) == DType::kFloat16 || DType(to) == DType::kBFloat16;
      b.output(half ? b.convert(x, DType::kFloat32, DType(to)) : b.convert(x, DType(to)), DType(to));
    }
  }
  return b;
}

constexpr int64_t kGap = 2;
struct NamedBody {
  std::string name, op;
  Body body;
  int64_t gap = kGap;  // of the elements of inputs
};
std::vector<NamedBody> all_bodies() {
  std::vector<NamedBody> all{{"sample", "", sample_body()}, {"conversions", "", conversions()}};
  // With operands in the order of positions: aligned rows, and a last group that is not full.
  for (const int64_t size : {int64_t(8), int64_t(299)}) {
    NamedBody wide{"wide_" + std::to_string(size), "", wide_body(8), 1};
    if (size % 8 != 0) {
      wide.body.space = {size};
      wide.body.inputs[0].shape = {size};
      wide.body.inputs[1].shape = {};
    }
    all.push_back(wide);
  }
  for (const OpDef* op : registry().ops())
    if (Body b = row_body(*op); !b.outputs.empty())
      all.push_back({std::string("op_") + op->name, op->name, std::move(b)});
  return all;
}

// The elements of one operand; only inputs have gaps. Floats include infinities, NaN and so on.
struct Elements {
  // Element i is at position i gap.
  Elements(DType dtype, const Dims& shape, int64_t gap = 1)
      : type{dtype, {}, shape}, strides(contiguous_strides(shape)), bytes(size_t(numel(shape) * gap * size_of(dtype))) {
    for (int64_t& stride : strides) stride *= gap;
  }
  void fill(std::mt19937& random) {
    const double special[] = {0.0, -0.0, 1.0, -1.0, 2.5, double(INFINITY), -double(INFINITY), double(NAN), 1e30, 1e-40};
    for (int64_t i = 0; i < int64_t(bytes.size()) / size_of(type.dtype); ++i) {
      double x = std::uniform_real_distribution<double>(-4, 4)(random);
      if (is_float(type.dtype) && random() % 8 == 0) x = special[random() % std::size(special)];
      if (type.dtype == DType::kBool) x = double(random() % 2);
      if (is_integer(type.dtype)) x = double(1 + random() % 6);  // a divisor or exponent that no op refuses
      store_number(type.dtype, bytes.data() + i * size_of(type.dtype), x);
    }
  }
  double at(int64_t i) const { return load_number(type.dtype, bytes.data() + i * size_of(type.dtype)); }
  View view() const { return {&type, &strides, const_cast<char*>(bytes.data())}; }

  Type type;
  Dims strides;
  std::vector<char> bytes;
};

std::vector<View> views_of(const std::vector<Elements>& all) {
  std::vector<View> out;
  for (const Elements& e : all) out.push_back(e.view());
  return out;
}
std::vector<Elements> outputs_of(const Body& body) {
  std::vector<Elements> out;
  for (const TileOutput& o : body.outputs) out.emplace_back(o.dtype, o.single ? Dims{} : body.space);
  return out;
}

// The operands of one call of a body.
struct Operands {
  Operands(const Body& b, int64_t gap) : body(b), out(outputs_of(b)) {
    for (const TileInput& i : b.inputs) in.emplace_back(i.dtype, i.shape, gap);
  }
  CudaCall call() const { return {body, body.tiles.space, views_of(in), views_of(out)}; }
  const CudaBody body;
  std::vector<Elements> in, out;
};

// The largest difference of two results, in units in the last place of the largest one of result, 1 and `factor`, by
// which the formula multiplies what it computes. NaN must agree.
double difference(const Elements& a, const Elements& b, const Elements* factor) {
  double worst = 0;
  for (int64_t i = 0; i < numel(a.type.shape); ++i) {
    const double x = a.at(i), y = b.at(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double unit = a.type.dtype == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
    const double scale = std::max({1.0, std::fabs(y), factor ? std::fabs(factor->at(i)) : 0});
    const double error = std::fabs(x - y) / (scale * unit);
    worst = std::max(worst, std::isnan(error) ? double(INFINITY) : error);
  }
  return worst;
}

const char* folder() { return std::getenv("PERIGEE_CUDA_FOLDER"); }

// Calls a kernel compiled for the host as six threads of two blocks.
class HostKernels {
 public:
  HostKernels() : library_(::dlopen((std::string(folder()) + "/formulas.so").c_str(), RTLD_NOW)) {
    REQUIRE_MESSAGE(library_, ::dlerror());
  }
  ~HostKernels() { ::dlclose(library_); }
  HostKernels(const HostKernels&) = delete;

  void run(const NamedBody& b, const Operands& operands) const {
    const CudaCall call = operands.call();
    const auto kernel = reinterpret_cast<void (*)(const int64_t*)>(find(b.name.c_str()));
    *static_cast<unsigned*>(find("blockDim")) = 3;
    *static_cast<unsigned*>(find("gridDim")) = 2;
    for (unsigned thread = 6; thread-- > 0;) {
      *static_cast<unsigned*>(find("blockIdx")) = thread / 3;
      *static_cast<unsigned*>(find("threadIdx")) = thread % 3;
      kernel(call.words().data());
    }
  }

 private:
  void* find(const char* name) const {
    void* found = ::dlsym(library_, name);
    REQUIRE_MESSAGE(found, name);
    return found;
  }
  void* library_;
};

}  // namespace

TEST_CASE("cuda source: the kernel of a body is its values in order") {
  const Operands operands(sample_body(), 1);
  const CudaCall call = operands.call();
  CHECK(call.form() == "fgsffsd1n");
  CHECK(call.kernel("sample") == R"(namespace pg::formulas {
PERIGEE_KERNEL(sample, Words<19>) {
  using I = int32_t;
  for (int64_t at = thread_index(); at < a.word[0]; at += thread_count()) {
    const I i = I(at);
    const I c2 = i % I(a.word[9]), r2 = i / I(a.word[9]);
    const I c1 = r2 % I(a.word[8]), r1 = r2 / I(a.word[8]);
    const I c0 = r1;
    const Half v0 = load<Half>(a.word[1], i);
    const float v1 = load<float>(a.word[2], c0 * I(a.word[10]) + c1 * I(a.word[11]) + c2 * I(a.word[12]));
    const int64_t v2 = load<int64_t>(a.word[3], 0);
    const float v3 = convert_one<float>(v0);
    const float v4 = bits<float>(a.word[13]);
    const float v5 = apply<"add">({}, v3, v1);
    const float v6 = apply<"mul">({}, v5, v4);
    const float v7 = convert_one<float>(convert_one<BFloat16>(apply<"hardtanh">({bits<double>(a.word[14]), )"
                                 R"(bits<double>(a.word[15])}, v6)));
    const bool v8 = apply<"gt">({}, v3, v1);
    const float v9 = apply<"where">({}, v8, v7, v4);
    const int32_t v10 = convert_one<int32_t>(v6);
    const int64_t v11 = bits<int64_t>(a.word[16]);
    if (refused<"floor_divide">(v11)) {
      report(reinterpret_cast<Fault*>(a.word[17]), int32_t(a.word[18]), int64_t(v11), i);
      continue;
    }
    const int64_t v12 = apply<"floor_divide">({}, v2, v11);
    store<Half>(a.word[4], i, convert_one<Half>(v9));
    store<int32_t>(a.word[5], i, v10);
    if (i == 0) store<int64_t>(a.word[6], 0, v12);
  }
}
}  // namespace pg::formulas
)");
  CHECK(CudaBody(sample_body()).fits(3));
  Body large;
  for (int i = 0; i < 40; ++i) large.output(large.input(DType::kFloat32, {}), DType::kFloat32);
  CHECK(CudaBody(large).fits(4));
  CHECK(!CudaBody(large).fits(5));
}

TEST_CASE("cuda source: a thread takes several aligned elements at once") {
  const Operands operands(wide_body(8), 1);
  const CudaCall call = operands.call();
  CHECK(call.form() == "fgffc4n");
  CHECK(call.groups() == 6);
  CHECK(call.kernel("wide") == R"(namespace pg::formulas {
PERIGEE_KERNEL(wide, Words<9>) {
  using I = int32_t;
  for (int64_t at = 4 * thread_index(); at < a.word[0]; at += 4 * thread_count()) {
    const I i = I(at);
    const int64_t left = a.word[0] - at;
    const I c1 = i % I(a.word[6]), r1 = i / I(a.word[6]);
    const I c0 = r1;
    const auto p0 = load_pack<Pack<float, 4>>(a.word[1], i, left);
    Pack<float, 4> p2;
    Pack<Half, 4> p3;
    PERIGEE_UNROLL
    for (int j = 0; j < 4; ++j) {
    const float v0 = p0.at[j];
    const float v1 = load<float>(a.word[2], c0 * I(a.word[7]) + (c1 + j) * I(a.word[8]));
    const float v2 = apply<"mul">({}, v0, v1);
    const float v3 = apply<"add">({}, v2, v1);
    const float v4 = convert_one<float>(convert_one<Half>(apply<"add">({}, v3, v3)));
    p2.at[j] = v3;
    p3.at[j] = convert_one<Half>(v4);
    }
    store_pack(a.word[3], i, left, p2);
    store_pack(a.word[4], i, left, p3);
  }
}
}  // namespace pg::formulas
)");
  CHECK(Operands(wide_body(6), 1).call().form() == "fgffc1n");  // a group would cross the end of a row
  std::vector<View> in = views_of(operands.in);
  in[0].data = static_cast<char*>(in[0].data) + sizeof(float);
  CHECK(CudaCall(operands.body, operands.body.tiles.space, in, views_of(operands.out)).form() == "fgffc1n");
}

TEST_CASE("cuda source: the value that a body reduces is a function of the position") {
  Body b = wide_body(8);
  b.outputs.pop_back();
  b.reductions = {{&registry().require("sum"), 3, DType::kFloat32, 8, DType::kFloat32}};
  CHECK(Operands(b, 1).call().element() == R"(__device__ inline float element(const Words<8>& a, int64_t at) {
    using I = int32_t;
    const I i = I(at);
    const I c1 = i % I(a.word[5]), r1 = i / I(a.word[5]);
    const I c0 = r1;
    const float v0 = load<float>(a.word[1], i);
    const float v1 = load<float>(a.word[2], c0 * I(a.word[6]) + c1 * I(a.word[7]));
    const float v2 = apply<"mul">({}, v0, v1);
    const float v3 = apply<"add">({}, v2, v1);
    store<float>(a.word[3], i, v3);
    return v3;
}
)");
}

TEST_CASE("cuda source: dims that all operands traverse with one stride are one") {
  Body b;
  b.space = {2, 3, 4};
  b.output(b.op("add", {b.input(DType::kFloat32, {2, 3, 4}), b.input(DType::kFloat32, {4})}, DType::kFloat32),
           DType::kFloat32);
  CHECK(Operands(b, 1).call().form() == "fgfc4n");  // rows of 4
  b.inputs[1].shape = {};
  CHECK(Operands(b, 1).call().form() == "fsfb4n");
  CHECK(Operands(b, 2).call().form() == "gsfb4n");
  CHECK(Operands(b, 2).call().words().size() == 1 + 3 + 1 + 1);
}

TEST_CASE("cuda source: the formulas need no header") {
  CHECK(cuda_formulas().find("#include") == std::string_view::npos);
  for (const NamedBody& b : all_bodies())
    for (const TileValue& v : b.body.values)
      if (v.op)
        CHECK_MESSAGE(cuda_formulas().find('"' + std::string(v.op->name) + '"') != std::string::npos, v.op->name);
}

TEST_CASE("cuda source: writes every row" * doctest::skip()) {
  REQUIRE(folder());
  std::ofstream cuda(std::string(folder()) + "/formulas.cu");
  cuda << cuda_formulas();
  const std::vector<NamedBody> all = all_bodies();
  for (const NamedBody& b : all) cuda << Operands(b.body, b.gap).call().kernel(b.name);
  CHECK(all.size() > 80);
  CHECK(cuda.flush());
}

#ifdef PERIGEE_FAKE_CUDA
TEST_CASE("cuda source: NVRTC compiles every kernel" * doctest::skip()) {
  struct Compiler {
    void* plugin = ::dlopen(PERIGEE_CUDA, RTLD_NOW);
    int arch = 0, count = 0;
    bool absent = false;
    void compile(const char* name, const char* source) {
      char error[4000] = {};
      using Compile = int64_t (*)(int, const char*, char*, size_t);
      const auto size =
          reinterpret_cast<Compile>(::dlsym(plugin, "perigee_cuda_compile"))(arch, source, error, sizeof error);
      absent |= std::string_view(error).find("cannot be opened") != std::string_view::npos;
      if (!absent) CHECK_MESSAGE(size > 0, std::string(name), " ", std::string(error));
      ++count;
    }
  } compiler;
  REQUIRE_MESSAGE(compiler.plugin, ::dlerror());
  const auto condition = reinterpret_cast<const char* (*)()>(::dlsym(compiler.plugin, "perigee_cuda_condition"));
  if (folder()) std::ofstream(std::string(folder()) + "/condition.ptx") << condition();
  const bool all = std::getenv("PERIGEE_CUDA_ALL") != nullptr;
  using Each = void (*)(void*, const char*, const char*);
  const auto corpus =
      reinterpret_cast<void (*)(bool, int, Each, void*)>(::dlsym(compiler.plugin, "perigee_cuda_corpus"));
  const auto each = [](void* user, const char* name, const char* source) {
    static_cast<Compiler*>(user)->compile(name, source);
  };
  for (const int arch : {75, 80, 90}) {
    compiler.arch = arch;
    corpus(all, arch, each, &compiler);
    std::string bodies;  // one module, as the formulas take most of the time
    for (const NamedBody& b : all_bodies())
      if (all || b.name.size() % 4 == 0) bodies += Operands(b.body, b.gap).call().kernel(b.name);
    compiler.compile("pointwise bodies", bodies.c_str());
  }
  compiler.arch = 999;  // unknown: PTX
  compiler.compile("PTX", "");
  if (compiler.absent)
    MESSAGE("no libnvrtc: not compiled");
  else
    MESSAGE("NVRTC: ", compiler.count, " modules");
}
#endif

TEST_CASE("cuda source: computes what the CPU computes" * doctest::skip()) {
  REQUIRE(folder());
  const HostKernels kernels;
  std::mt19937 random(1);
  for (const NamedBody& b : all_bodies()) {
    CAPTURE(b.name);
    Operands operands(b.body, b.gap);
    std::vector<Elements> expected = outputs_of(b.body), &got = operands.out;
    for (Elements& e : operands.in) e.fill(random);
    make_tile_kernel(b.body)->run(views_of(operands.in), views_of(expected));
    kernels.run(b, operands);
    // The CPU computes elementary functions on vectors, by polynomials of its own or Sleef's. Remainders are exact.
    const cpu::SpanRow* row = cpu::find_span(b.op);
    const size_t operand_count = operands.in.size() / got.size();
    for (size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      const bool other = row && row->simd && row->check != SpanCheck::kZeroDivisor && is_float(got[k].type.dtype) &&
                         size_of(got[k].type.dtype) >= 4;
      const Elements* cotangent = b.op.ends_with("_grad") ? &operands.in[k * operand_count] : nullptr;
      CHECK(difference(got[k], expected[k], cotangent) <= (other ? 2 : 0));
    }
  }
}
