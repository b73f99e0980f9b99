// Values and gradients of shape ops through apply. The Lua tests rely on them.
#include <doctest/doctest.h>

#include "tensor/rule.h"
#include "tensor/tape.h"

using namespace pg;

namespace {

Context ctx;

Value tensor(Dims shape, const std::vector<double>& numbers, DType dtype = DType::kFloat64) {
  Value v = make_array(Type{dtype, {}, shape});
  for (size_t i = 0; i < numbers.size(); ++i)
    store_number(dtype, static_cast<char*>(v.array().data()) + i * size_t(size_of(dtype)), numbers[i]);
  return v;
}

Value range(Dims shape, DType dtype = DType::kFloat64) {
  std::vector<double> numbers(size_t(numel(shape)));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = double(i + 1);
  return tensor(shape, numbers, dtype);
}

std::string show(const Value& v) {
  const Value c = to_contiguous(ctx, v);
  std::string text = to_string(v.shape()) + ":";
  for (int64_t i = 0; i < v.numel(); ++i)
    text += fmt::format(" {}", load_number(v.dtype(), static_cast<char*>(c.array().data()) + i * size_of(v.dtype())));
  return text;
}

Values run(const char* name, std::vector<Value> in, AttrList attrs = {}) {
  const OpDef& op = registry().require(name);
  while (in.size() < op.inputs.size()) in.emplace_back();
  return apply(ctx, op, in, make_attrs(op, attrs));
}
std::string first(const char* name, std::vector<Value> in, AttrList attrs = {}) {
  return show(run(name, in, attrs)[0]);
}
std::string all(const char* name, std::vector<Value> in, AttrList attrs = {}) {
  std::string text;
  for (const Value& v : run(name, in, attrs)) text += (text.empty() ? "" : " | ") + show(v);
  return text;
}

}  // namespace

TEST_CASE("views share memory and copies do not") {
  const Value x = range({2, 3});
  CHECK(first("reshape", {x}, {{"shape", Ints{0, -1, 1}}}) == "2x3x1: 1 2 3 4 5 6");
  CHECK(first("reshape", {range({0, 6})}, {{"shape", Ints{0, -1}}}) == "0x6:");
  const Value t = run("t", {x})[0];
  CHECK(show(t) == "3x2: 1 4 2 5 3 6");
  CHECK(first("reshape", {t}, {{"shape", Ints{-1}}}) == "6: 1 4 2 5 3 6");
  CHECK(first("flatten", {t}) == "6: 1 4 2 5 3 6");
  CHECK(first("moveaxis", {range({1, 2, 3})}, {{"source", Ints{1}}, {"destination", Ints{-1}}}) ==
        "2x3x1: 1 2 3 4 5 6");
  CHECK(first("expand", {tensor({2, 1}, {1, 2})}, {{"shape", Ints{2, -1, 2}}}) == "2x2x2: 1 1 2 2 1 1 2 2");
  CHECK(first("narrow", {x}, {{"dim", int64_t(2)}, {"start", int64_t(-2)}, {"length", int64_t(2)}}) == "2x2: 2 3 5 6");
  CHECK(first("select", {x}, {{"dim", int64_t(-1)}, {"index", int64_t(1)}}) == "2: 1 4");
  CHECK(all("split", {range({5})}, {{"split_size", Ints{2}}}) == "2: 1 2 | 2: 3 4 | 1: 5");
  CHECK(all("chunk", {range({5})}, {{"chunks", int64_t(4)}}) == "2: 1 2 | 2: 3 4 | 1: 5");
  CHECK(all("unbind", {x}, {{"dim", int64_t(2)}}) == "2: 1 4 | 2: 2 5 | 2: 3 6");
}

TEST_CASE("joins, repeats, reorderings and padding have the expected values") {
  const Value x = range({2, 3}), t = run("t", {x})[0];
  CHECK(first("cat", {t, tensor({1, 2}, {7, 8}, DType::kInt32)}) == "4x2: 1 4 2 5 3 6 7 8");
  CHECK(first("stack", {x, x}, {{"dim", int64_t(2)}}) == "2x2x3: 1 2 3 1 2 3 4 5 6 4 5 6");
  CHECK(first("tile", {range({2})}, {{"dims", Ints{2, 2}}}) == "2x4: 1 2 1 2 1 2 1 2");
  CHECK(first("repeat_interleave", {x}, {{"repeats", Ints{1, 0, 2}}, {"dim", int64_t(2)}}) == "2x3: 1 3 3 4 6 6");
  CHECK(first("flip", {x}, {{"dims", Ints{1, 2}}}) == "2x3: 6 5 4 3 2 1");
  CHECK(first("roll", {x}, {{"shifts", Ints{-2, 5}}, {"dims", Ints{1, 2}}}) == "2x3: 2 3 1 5 6 4");
  CHECK(first("roll", {x}, {{"shifts", Ints{1}}}) == "2x3: 6 1 2 3 4 5");
  CHECK(first("pad", {x}, {{"pad", Ints{1, -1, 0, 1}}, {"value", 9.0}}) == "3x3: 9 1 2 9 4 5 9 9 9");
  CHECK(first("pad", {x}, {{"pad", Ints{2, 1}}, {"mode", std::string("reflect")}}) == "2x6: 3 2 1 2 3 2 6 5 4 5 6 5");
  CHECK(first("pad", {t}, {{"pad", Ints{0, 0, 1, 1}}, {"mode", std::string("circular")}}) ==
        "5x2: 3 6 1 4 2 5 3 6 1 4");
  CHECK(first("tril", {x}) == "2x3: 1 0 0 4 5 0");
  CHECK(first("triu", {x}, {{"diagonal", int64_t(1)}}) == "2x3: 0 2 3 0 0 6");
  CHECK(first("diagonal", {x}, {{"offset", int64_t(1)}}) == "2: 2 6");
  CHECK(first("diag", {range({2})}, {{"diagonal", int64_t(-1)}}) == "3x3: 0 0 0 1 0 0 0 2 0");
  const AttrList region = {{"start", Ints{0, 0}}, {"length", Ints{1, 2}}, {"step", Ints{1, 2}}, {"drop", Ints{1, 0}}};
  CHECK(first("slice", {x}, region) == "2: 1 3");
  CHECK(first("slice_assign", {x, Value(0.1)}, region) == "2x3: 0.1 2 0.1 4 5 6");
  CHECK(show(x) == "2x3: 1 2 3 4 5 6");
}
