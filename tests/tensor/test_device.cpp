// Loads the plugin perigee_test_device.so from the folder of the test program, as a real device is loaded.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tensor/runtime.h"
#include "tensor/context.h"
#include "tensor/device_abi.h"
#include "tensor/device_table.h"
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
  const auto before = pg::device_names();  // other tests load devices too
  const pg::Device device = pg::device_from_name("test_device:1");
  CHECK(!device.is_cpu());
  CHECK(pg::name_of(device) == "test_device:1");
  CHECK(pg::device_names().size() == before.size() + 2);
  CHECK(pg::device_from_name("test_device") != device);
  CHECK_THROWS_WITH_AS(pg::device_from_name("test_device:2"),
                       "device: bad argument 'name' (expected a number below 2, got \"test_device:2\")", pg::Error);
}

TEST_CASE("a missing device is an error with the loader's message") {
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

TEST_CASE("ops that a device lacks or refuses are errors") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({1, 2}), device);
  CHECK_THROWS_WITH_AS(run(ctx, "div", {x, x}), "div: no kernel for device test_device", pg::Error);
  CHECK_THROWS_AS(run(ctx, "add", {x, vector({1, 2})}), pg::Error);
  CHECK_THROWS_AS(pg::make_array({pg::DType::kFloat32, device, {int64_t(1) << 25}}), pg::OutOfMemory);
  Value integers = pg::make_filled({pg::DType::kInt32, device, {2}}, 1);
  CHECK_THROWS_WITH_AS(run(ctx, "neg", {integers}), "neg: no kernel for device test_device", pg::Error);
}

namespace {

// A folder of plugins that $PERIGEE_DEVICE_PATH names while it exists.
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

  // Returns the error of loading `device`. The plugin has the fault of this name.
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

TEST_CASE("unusable plugins are errors that give the reason and use no slot") {
  PluginFolder folder;
  const auto before = pg::device_names();  // other tests load devices too
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
  CHECK(folder.load("renamed") ==
        cannot_load("renamed", folder.file("renamed") + " provides the device 'test_device'"));
  for (const char* name : {"oldtable", "refuses"})
    CHECK(folder.load(name, name) ==
          cannot_load(name, folder.file(name) + " was built for another version of perigee"));
  CHECK(folder.load("incomplete", "incomplete") ==
        cannot_load("incomplete", folder.file("incomplete") + " lacks a function of the device table"));
  CHECK(folder.load("unknownop", "unknownop") ==
        cannot_load("unknownop", folder.file("unknownop") + ": no op 'no_such_op'"));
  CHECK(pg::device_names() == before);
}

TEST_CASE("invalid device names are errors") {
  for (const char* bad : {"", ":", "cpu:", "cpu:x", "cpu:-1", "cpu:1.5", "CPU", "../evil", "a/b", "cpu:999", "cpu:1"})
    CHECK_THROWS_AS(pg::device_from_name(bad), pg::Error);
  CHECK(pg::device_from_name("cpu").is_cpu());
  CHECK(pg::device_from_name("cpu:0").is_cpu());
  CHECK(pg::device_names()[0] == "cpu");
}

TEST_CASE("device memory is released with its last reference") {
  const pg::Device device = pg::device_from_name("test_device");
  const int64_t live = pg::Runtime::current().memory().stats().live;
  for (int i = 0; i < 1000; ++i)
    pg::make_array({pg::DType::kFloat32, device, {1 << 18}});  // in total 16 times the memory of the device
  for (int i = 0; i < 1000; ++i) pg::make_array({pg::DType::kFloat32, device, {0}});
  CHECK(pg::Runtime::current().memory().stats().live == live);
  pg::make_array({pg::DType::kUInt8, device, {64 << 20}});  // all memory at once
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

TEST_CASE("tensors can be moved between devices but not mixed in an op") {
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
          "add: bad argument 'y' (expected a tensor on test_device like the others, got float32 2 test_device:1; "
          "y:to(\"test_device\") moves it)");
  }
}

TEST_CASE("ops without a device kernel are decomposed, and views need no kernel") {
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

TEST_CASE("the next wait throws an error of device work once, and later work is dropped") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({-1, 4}), device);
  const Value root = run(ctx, "sqrt", {x});
  const Value sum = run(ctx, "add", {root, Value(1.0)});
  CHECK_THROWS_WITH_AS(pg::to_device(ctx, sum, {}), "sqrt: a negative number", pg::Error);
  pg::synchronize(device);
  CHECK(element(ctx, run(ctx, "sqrt", {run(ctx, "mul", {x, x})}), 1) == 4);
}

TEST_CASE("a late error follows its values to another device, and is thrown once") {
  pg::Context ctx;
  const pg::Device first = pg::device_from_name("test_device"), second = pg::device_from_name("test_device:1");
  const Value root = run(ctx, "sqrt", {pg::to_device(ctx, vector({-1}), first)});
  const Value there = pg::to_device(ctx, root, second);
  CHECK_THROWS_WITH_AS(pg::item(there), "sqrt: a negative number", pg::Error);
  pg::synchronize(first);
  CHECK(pg::item(pg::make_scalar(3, pg::DType::kFloat32, first)) == 3);
}

TEST_CASE("a late error starts with its position in the script") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value x = pg::to_device(ctx, vector({-1}), device), y = pg::make_array(x.type());
  const pg::OpDef& op = pg::registry().require("sqrt");
  const pg::View in{&x.type(), &x.array().strides, x.array().data()};
  const pg::View out{&y.type(), &y.array().strides, y.array().data()};
  const auto none = [](int, const pg::Dims&) -> pg::View { return {}; };
  const char* place = pg::kept_place("model.lua:7: layer: ");
  CHECK(place == pg::kept_place("model.lua:7: layer: "));
  const pg::KernelRow row = pg::registry().kernel(op, device);
  row.fn(pg::KernelArgs{op, {&in, 1}, {&out, 1}, {}, none, pg::stream_of(device), place});
  CHECK_THROWS_WITH_AS(pg::synchronize(device), "model.lua:7: layer: a negative number", pg::PositionedError);
}

TEST_CASE("the source of an upload may change when the call returns") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  for (const int64_t n : {1, 1000, 65536, 65537, 1 << 20}) {
    std::vector<Value> on_device;
    for (int round = 0; round < 3; ++round) {
      Value host = pg::make_filled({pg::DType::kFloat32, {}, {n}}, round);
      on_device.push_back(pg::to_device(ctx, host, device));
      std::fill_n(static_cast<float*>(host.array().data()), n, -1.0f);
    }
    for (int round = 0; round < 3; ++round) {
      const Value back = pg::to_device(ctx, on_device[size_t(round)], {});
      const float* data = static_cast<float*>(back.array().data());
      CHECK(std::all_of(data, data + n, [&](float v) { return v == float(round); }));
    }
  }
}

TEST_CASE("copies between devices are ordered with the work on their memory") {
  pg::Context ctx;
  const pg::Device places[] = {pg::device_from_name("test_device"), pg::device_from_name("test_device:1")};
  for (int round = 0; round < 50; ++round) {
    Value x = pg::to_device(ctx, vector({float(round)}), places[0]);
    for (int hop = 1; hop <= 6; ++hop) x = run(ctx, "add", {pg::to_device(ctx, x, places[hop % 2]), Value(1.0)});
    CHECK(pg::item(x) == round + 6);
  }
}

TEST_CASE("a tensor that an update failed to write late can be written and read again") {
  pg::Context ctx;
  const pg::Device device = pg::device_from_name("test_device");
  const Value kept = pg::to_device(ctx, vector({1, 2}), device);
  const Value bad = run(ctx, "sqrt", {pg::to_device(ctx, vector({-1, 4}), device)});
  pg::copy_within(device, kept.array().data(), bad.array().data(), 8);  // in place; dropped
  CHECK_THROWS_WITH_AS(pg::synchronize(device), "sqrt: a negative number", pg::Error);
  const Value good = pg::to_device(ctx, vector({3, 4}), device);
  pg::copy_within(device, kept.array().data(), good.array().data(), 8);
  CHECK(element(ctx, kept, 0) == 3);
  CHECK(element(ctx, kept, 1) == 4);
}

TEST_CASE("each runtime has a stream of its own, and late errors stay in it") {
  const pg::Device device = pg::device_from_name("test_device");
  void* const ours = pg::stream_of(device);
  pg::synchronize(device);
  Value kept;
  {
    const pg::Ref<pg::Runtime> runtime = pg::Runtime::create({});
    const pg::ScopedRuntime scope(*runtime);
    pg::Context ctx;
    CHECK(pg::stream_of(device) != ours);
    run(ctx, "sqrt", {pg::to_device(ctx, vector({-1, 4}), device)});
    {
      const pg::ScopedRuntime process(pg::Runtime::process());
      CHECK(pg::stream_of(device) == ours);
      pg::synchronize(device);
    }
    CHECK_THROWS_WITH_AS(pg::synchronize(device), "sqrt: a negative number", pg::Error);
    kept = pg::to_device(ctx, vector({1, 2}), device);
    CHECK(element(ctx, kept, 1) == 2);
    run(ctx, "sqrt", {pg::to_device(ctx, vector({-1}), device)});  // nobody waits for this error
  }
  kept = {};  // the last reference to the runtime
  CHECK(pg::stream_of(device) == ours);
}

TEST_CASE("a device without optional entries runs every op with waits") {
  PluginFolder folder;
  std::filesystem::create_symlink(PERIGEE_TEST_DEVICE, folder.file("plain"));
  REQUIRE(folder.load("plain", "plain") == "");
  pg::Context ctx;
  const pg::Device first = pg::device_from_name("plain"), second = pg::device_from_name("plain:1");
  CHECK(!pg::fuses(first));
  CHECK(!pg::host_reads(first));
  Value x = pg::to_device(ctx, vector({1, 2}), first);
  x = pg::to_device(ctx, run(ctx, "add", {x, x}), second);
  CHECK(element(ctx, run(ctx, "mul", {x, Value(3.0)}), 1) == 12);
  Value integers = pg::make_filled({pg::DType::kInt32, first, {2}}, 1);  // the device has no `supports` entry
  CHECK_THROWS_AS(pg::item(run(ctx, "sum", {run(ctx, "neg", {integers})})), pg::Error);
}

namespace {
struct Sample {
  int32_t a;
  double b;
};
}  // namespace

TEST_CASE("the ABI depends on names, offsets and sizes of fields, and needs all of them") {
  using pg::abi::Field;
  constexpr Field all[] = {{"a", 0, 4, 4}, {"b", 8, 8, 8}}, renamed[] = {{"a", 0, 4, 4}, {"c", 8, 8, 8}};
  constexpr Field first[] = {{"a", 0, 4, 4}}, last[] = {{"b", 8, 8, 8}};
  CHECK(pg::abi::complete(all, sizeof(Sample), alignof(Sample)));
  CHECK(!pg::abi::complete(first, sizeof(Sample), alignof(Sample)));
  CHECK(!pg::abi::complete(last, sizeof(Sample), alignof(Sample)));
  CHECK(pg::abi::mix(0, all) != pg::abi::mix(0, renamed));
  CHECK(pg::abi::mix(0, all) != pg::abi::mix(0, first));
}

// The transform keeps its plan per thread, and what a thread keeps is destroyed before the handlers of exit run.
TEST_CASE("a process may exit while the device has work left") {
  const std::string script =
      "local x = pg.rand(8, 8):to(\"test_device\") print(pg.fft.rfft(x):sum():item() ~= nil) "
      "local last = pg.fft.rfft(x) os.exit(3)";
  const std::string settings =  // os.exit does not close the state, so its tensors would count as leaks
      "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 MALLOC_PERTURB_=165 PERIGEE_TEST_DEVICE=full ";
  const std::string command = settings + PERIGEE_PROGRAM + " -e '" + script + "' > /dev/null 2>&1";
  const int status = std::system(command.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
}
