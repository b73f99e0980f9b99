// The loadable seam: perigee_test_device.so beside the test program is loaded as a real device would be.
#include <doctest/doctest.h>

#include <string>

#include "tensor/context.h"
#include "tensor/device.h"
#include "tensor/tape.h"

namespace {

using pg::Value;

Value run(pg::Context& ctx, const char* op, std::initializer_list<Value> inputs) {
  pg::Values in;
  for (const Value& v : inputs) in.push_back(v);
  const pg::OpDef& row = pg::registry().require(op);
  return pg::apply(ctx, row, in, pg::make_attrs(row))[0];
}

Value vector(std::initializer_list<float> numbers) {
  Value v = pg::make_array({pg::DType::kFloat32, {}, {int64_t(numbers.size())}});
  std::copy(numbers.begin(), numbers.end(), static_cast<float*>(v.array().data()));
  return v;
}

float element(pg::Context& ctx, const Value& v, int i) {
  return static_cast<float*>(pg::to_device(ctx, v, {}).array().data())[i];
}

}  // namespace

TEST_CASE("a device is loaded by name on first use") {
  const pg::Device device = pg::device_from_name("test_device:1");
  CHECK(!device.is_cpu());
  CHECK(pg::name_of(device) == "test_device:1");
  CHECK(pg::device_names().size() == 3);
  CHECK(pg::device_from_name("test_device") != device);
  CHECK_THROWS_WITH_AS(pg::device_from_name("test_device:2"),
                       "device: bad argument 'name' (expected a number below 2, got \"test_device:2\")", pg::Error);
}

TEST_CASE("a missing device is an error with the loader's text") {
  try {
    pg::device_from_name("absent");
    FAIL("no error");
  } catch (const pg::Error& e) {
    const std::string text = e.what();
    CHECK(text.find("device 'absent' cannot be loaded: ") == 0);
    CHECK(text.find("perigee_absent.so") != std::string::npos);
  }
}

TEST_CASE("ops run, broadcast and differentiate on a loaded device") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  Value x = pg::to_device(ctx, vector({1, 2, 3}), device);
  const auto leaf = pg::make_leaf(x.type(), pg::GradReq::kWrite);
  x.link(leaf.get(), 0);
  ctx.recording = true;
  const Value y = run(ctx, "mul", {run(ctx, "add", {x, Value(1.0)}), x});
  ctx.recording = false;
  CHECK(y.device() == device);
  CHECK(element(ctx, y, 2) == 12);
  const Value heads[] = {y}, none[] = {Value()};
  pg::backward(ctx, heads, none, {});
  CHECK(leaf->grad->value.device() == device);
  CHECK(element(ctx, leaf->grad->value, 0) == 3);
  CHECK(element(ctx, leaf->grad->value, 2) == 7);
}

TEST_CASE("what a device lacks or refuses is an error") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({1, 2}), device);
  CHECK_THROWS_WITH_AS(run(ctx, "div", {x, x}), "div: no kernel for device test_device", pg::Error);
  CHECK_THROWS_AS(run(ctx, "add", {x, vector({1, 2})}), pg::Error);
  CHECK_THROWS_AS(pg::make_array({pg::DType::kFloat32, device, {int64_t(1) << 25}}), pg::OutOfMemory);
  Value integers = pg::make_filled({pg::DType::kInt32, device, {2}}, 1);
  CHECK_THROWS_WITH_AS(run(ctx, "neg", {integers}), "test_device: computes in float32 and float64 only", pg::Error);
}
