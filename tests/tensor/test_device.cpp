// The loadable seam: perigee_test_device.so beside the test program is loaded as a real device would be.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tensor/context.h"
#include "tensor/device.h"
#include "tensor/tape.h"

namespace {

using pg::Value;

Value run(pg::Context& ctx, const char* op, std::initializer_list<Value> inputs, pg::AttrList attrs = {}) {
  pg::Values in;
  for (const Value& v : inputs) in.push_back(v);
  const pg::OpDef& row = pg::registry().require(op);
  return pg::apply(ctx, row, in, pg::make_attrs(row, attrs))[0];
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

namespace {

// A folder of plugins that $PERIGEE_DEVICE_PATH names for the extent of a test.
class PluginFolder {
 public:
  PluginFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "perigee-plugins-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    ::setenv("PERIGEE_DEVICE_PATH", name.c_str(), 1);
  }
  ~PluginFolder() {
    ::unsetenv("PERIGEE_DEVICE_PATH");
    ::unsetenv("PERIGEE_TEST_DEVICE_FAULT");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& device) const { return (path_ / ("perigee_" + device + ".so")).string(); }

  // The error of loading `device`; the plugin behaves as the fault of the same name asks.
  std::string load(const std::string& device, const char* fault = nullptr) {
    if (fault)
      ::setenv("PERIGEE_TEST_DEVICE_FAULT", fault, 1);
    else
      ::unsetenv("PERIGEE_TEST_DEVICE_FAULT");
    try {
      pg::device_from_name(device);
    } catch (const pg::Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path path_;
};

std::string cannot_load(const std::string& device, const std::string& why) {
  return "device '" + device + "' cannot be loaded: " + why;
}

}  // namespace

TEST_CASE("plugins that are of no use are errors that say why, and take no slot") {
  PluginFolder folder;
  const auto before = pg::device_names();
  CHECK(folder.load("absent").find(folder.file("absent") + ": cannot open shared object file") != std::string::npos);
  std::ofstream(folder.file("junk"))
      << "this is not a shared object, but long enough to be looked at as if it were one";
  CHECK(folder.load("junk").find("invalid ELF header") != std::string::npos);

  Dl_info other;  // a shared object without the entry
  REQUIRE(
      ::dladdr(reinterpret_cast<void*>(static_cast<std::string (*)(fmt::string_view, fmt::format_args)>(&fmt::vformat)),
               &other));
  std::filesystem::create_symlink(other.dli_fname, folder.file("noentry"));
  if (std::string(other.dli_fname).find(".so") != std::string::npos)
    CHECK(folder.load("noentry") == cannot_load("noentry", folder.file("noentry") + " has no entry perigee_device"));

  for (const char* name : {"renamed", "oldtable", "refuses", "incomplete", "unknownop"})
    std::filesystem::create_symlink(PERIGEE_TEST_DEVICE, folder.file(name));
  CHECK(folder.load("renamed") == cannot_load("renamed", folder.file("renamed") + " holds the device 'test_device'"));
  for (const char* name : {"oldtable", "refuses"})
    CHECK(folder.load(name, name) ==
          cannot_load(name, folder.file(name) + " was built for another version of perigee"));
  CHECK(folder.load("incomplete", "incomplete") ==
        cannot_load("incomplete", folder.file("incomplete") + " lacks a function of the device table"));
  CHECK(folder.load("unknownop", "unknownop") ==
        cannot_load("unknownop", folder.file("unknownop") + ": no op 'no_such_op'"));
  CHECK(pg::device_names() == before);
}

TEST_CASE("names of devices are checked") {
  for (const char* bad : {"", ":", "cpu:", "cpu:x", "cpu:-1", "cpu:1.5", "CPU", "../evil", "a/b", "cpu:999", "cpu:1"})
    CHECK_THROWS_AS(pg::device_from_name(bad), pg::Error);
  CHECK(pg::device_from_name("cpu").is_cpu());
  CHECK(pg::device_from_name("cpu:0").is_cpu());
  CHECK(pg::device_names()[0] == "cpu");
}

TEST_CASE("device memory is released when nobody holds it") {
  const pg::Device device = pg::device_from_name("test_device");
  const int64_t live = pg::memory_stats().live;
  for (int i = 0; i < 1000; ++i)
    pg::make_array({pg::DType::kFloat32, device, {1 << 18}});  // 16 times the memory there is
  for (int i = 0; i < 1000; ++i) pg::make_array({pg::DType::kFloat32, device, {0}});
  CHECK(pg::memory_stats().live == live);
  pg::make_array({pg::DType::kUInt8, device, {64 << 20}});  // all of it at once
}

TEST_CASE("strided device tensors are gathered on the device") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({1, 2, 3, 4, 5, 6}), device);
  pg::Ref<pg::Array> view = pg::Array::make({pg::DType::kFloat32, device, {3, 2}});
  view->buffer = x.array().buffer;
  view->strides = {1, 3};
  view->contiguous = false;
  const Value transposed(std::move(view));
  const Value back = pg::to_device(ctx, transposed, {});
  const float* data = static_cast<float*>(back.array().data());
  CHECK(std::vector<float>(data, data + 6) == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(element(ctx, run(ctx, "add", {transposed, Value(10.0)}), 1) == 14);
}

TEST_CASE("tensors move between devices and never mix") {
  pg::Context ctx;
  const pg::Device first = pg::device_from_name("test_device"), second = pg::device_from_name("test_device:1");
  const Value x = pg::to_device(ctx, vector({1, 2}), first), y = pg::to_device(ctx, x, second);
  CHECK(y.device() == second);
  CHECK(element(ctx, y, 1) == 2);
  CHECK(pg::item(pg::make_scalar(2.5, pg::DType::kFloat64, second)) == 2.5);
  try {
    run(ctx, "add", {x, y});
    FAIL("no error");
  } catch (const pg::Error& error) {
    CHECK(std::string(error.what()) ==
          "add: bad argument 'y' (expected a tensor on test_device like the others, got float32 2 test_device:1)");
  }
}

TEST_CASE("ops without a kernel on a device are decomposed, and views need none") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({1, 2, 3}), device);
  REQUIRE(!pg::registry().kernel(pg::registry().require("tile"), device).fn);
  const Value tiled = run(ctx, "tile", {x}, {{"dims", pg::Ints{2, 2}}});
  CHECK(tiled.device() == device);
  CHECK(tiled.shape() == pg::Dims{2, 6});
  CHECK(element(ctx, tiled, 10) == 2);
  const Value matrix = run(ctx, "reshape_to", {x}, {{"shape", pg::Ints{3, 1}}});
  CHECK(matrix.array().buffer == x.array().buffer);
  const Value reduced = run(ctx, "sum_to", {tiled}, {{"shape", pg::Ints{2, 1}}});
  CHECK(reduced.shape() == pg::Dims{2, 1});
  CHECK(element(ctx, reduced, 1) == 12);
}

TEST_CASE("gradients of broadcast inputs are summed on the device") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({1, 2, 3}), device);
  Value scale = pg::make_scalar(2, pg::DType::kFloat32, device);
  const auto leaf = pg::make_leaf(scale.type(), pg::GradReq::kWrite);
  scale.link(leaf.get(), 0);
  ctx.recording = true;
  const Value heads[] = {run(ctx, "sum", {run(ctx, "mul", {x, scale})})}, none[] = {Value()};
  pg::backward(ctx, heads, none, {});
  CHECK(leaf->grad->value.shape() == pg::Dims{});
  CHECK(pg::item(leaf->grad->value) == 6);
}
