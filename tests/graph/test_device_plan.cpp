// Plans on the test device, with fused bodies, programs and the kernels of the CPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cmath>
#include <filesystem>
#include <optional>

#include "graph/exec/exec.h"
#include "graph/passes/passes.h"
#include "loop_graphs.h"
#include "tensor/device_table.h"

namespace {

using namespace pg;
using namespace pg::test;

// Loads the plugin as the device "full".
Device full_device() {
  static const Device device = [] {
    std::string name = (std::filesystem::temp_directory_path() / "perigee-plugins-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    std::filesystem::create_symlink(PERIGEE_TEST_DEVICE, std::filesystem::path(name) / "perigee_full.so");
    ::setenv("PERIGEE_DEVICE_PATH", name.c_str(), 1);
    ::setenv("PERIGEE_TEST_DEVICE_FAULT", "full", 1);
    const Device found = device_from_name("full");
    ::unsetenv("PERIGEE_DEVICE_PATH");
    ::unsetenv("PERIGEE_TEST_DEVICE_FAULT");
    std::filesystem::remove_all(name);
    return found;
  }();
  return device;
}

Operand input_on(GraphSketch& g, Device device, const char* name, Dims shape, DType dtype = DType::kFloat32) {
  const Operand x = g.input(name, shape, dtype);
  g.graph.nodes.back().types[0].device = device;
  return x;
}

Value floats(Device device, std::initializer_list<float> numbers) {
  Value v = make_array({DType::kFloat32, device, {int64_t(numbers.size())}});
  upload(device, v.array().data(), numbers.begin(), numbers.size() * sizeof(float));
  return v;
}

std::vector<float> read(const Value& v) {
  std::vector<float> out(size_t(v.numel()));
  download(v.device(), out.data(), v.array().data(), out.size() * sizeof(float));
  return out;
}

size_t fused_steps(const Plan& plan) {
  return size_t(std::count_if(plan.steps.begin(), plan.steps.end(), [](const Step& s) { return s.fused != nullptr; }));
}

Graph chain_on(Device device, int length) {
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {3}), y = input_on(g, device, "y", {3});
  Operand z = g.op("mul", {x, y});
  for (int i = 1; i < length; ++i) z = g.op("add", {z, double(i)});
  return optimize(g.done({z}));
}

}  // namespace

TEST_CASE("a device that fuses compiles bodies, and runs the ops of bodies that it refuses") {
  const Device device = full_device();
  REQUIRE(fuses(device));
  Context ctx;
  for (const int length : {3, 40}) {
    const auto plan = make_plan(chain_on(device, length));
    CHECK((fused_steps(*plan) > 0) == (length == 3));
    Value in[] = {floats(device, {1, 2, 3}), floats(device, {2, 2, -1})};
    const float added = float((length - 1) * length / 2);
    CHECK(read(run(*plan, ctx, in)[0]) == std::vector<float>{2 + added, 4 + added, -3 + added});
  }
}

TEST_CASE("a plan of one device runs as one program while its memory is the same") {
  const Device device = full_device();
  Context ctx;
  GraphSketch g;  // without fusion
  const Operand product = g.op("mul", {input_on(g, device, "x", {3}), input_on(g, device, "y", {3})});
  const auto plan = make_plan(g.done({g.op("add", {g.op("add", {product, 1.0}), 2.0})}));
  REQUIRE(plan->segments.size() == 1);
  CHECK(plan->segments[0].end == int32_t(plan->steps.size()));
  const Value x = floats(device, {1, 2, 3}), y = floats(device, {2, 2, -1});
  std::vector<Value> kept;
  for (int round = 0; round < 12; ++round) {
    const float first = float(round);
    upload(device, x.array().data(), &first, sizeof first);  // the same memory with another number
    Value in[] = {x, y};
    Value out = run(*plan, ctx, in)[0];
    CHECK(read(out) == std::vector<float>{2 * first + 3, 7, 0});
    if (round % 4 == 3) kept.push_back(out);  // so that the next result gets other memory
  }
}

TEST_CASE("a program is patched for other addresses, and queued launches keep theirs") {
  const Device device = full_device();
  const DeviceTable& table = device_table(device);
  const Value from = floats(device, {1, 2, 3});
  const Value a = floats(device, {0, 0, 0}), b = floats(device, {0, 0, 0}), c = floats(device, {0, 0, 0});
  std::optional<CapturedWork> work(device);
  const auto copies = [&](const Value& from_value, std::vector<Value> targets) {
    return [&table, device, from_value, targets](Recording& recording) {
      for (const Value& to : targets)
        table.copy(device.index, recording.stream(), to.array().data(), from_value.array().data(), 12);
    };
  };
  work->capture(0, copies(from, {a}));
  work->launch();
  work->capture(0, copies(from, {b}));
  CHECK(read(b) == std::vector<float>{0, 0, 0});
  CHECK(read(a) == std::vector<float>{1, 2, 3});
  work->launch();
  CHECK(read(b) == std::vector<float>{1, 2, 3});
  table.clear(device.index, stream_of(device), b.array().data(), 12);
  work->capture(0, copies(from, {a, b}));  // other work
  work->capture(1, copies(b, {c}));        // and a piece after it
  CHECK_THROWS_AS(work->capture(1, [](Recording&) { throw Error("a kernel fails"); }), Error);
  work->launch();
  work.reset();
  CHECK(read(c) == std::vector<float>{1, 2, 3});
}

TEST_CASE("the work of a destroyed stream still runs") {
  const Device device = full_device();
  const DeviceTable& table = device_table(device);
  const Value from = floats(device, {1, 2}), to = floats(device, {0, 0});
  synchronize(device);
  void* stream = table.create_stream(device.index);
  void* event = table.create_event(device.index);
  table.copy(device.index, stream, to.array().data(), from.array().data(), 8);
  table.record(device.index, stream, event);
  table.destroy_stream(device.index, stream);
  table.await(device.index, event);
  table.destroy_event(device.index, event);
  CHECK(read(to) == std::vector<float>{1, 2});
}

TEST_CASE("steps that wait for the host are between programs") {
  const Device device = full_device();
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {3}), y = g.op("exp", {g.op("neg", {g.op("neg", {x})})});
  const Operand host = g.op("to", {y}, {{"device", Device{}}}), back = g.op("to", {host}, {{"device", device}});
  const auto plan = make_plan(g.done({g.op("neg", {g.op("neg", {g.op("add", {back, y})})})}));
  REQUIRE(plan->segments.size() == 2);
  CHECK(plan->segments[0].end == 3);
  CHECK(plan->segments[1].begin == 5);
  CHECK(plan->staged == std::vector<bool>{true});
  Context ctx;
  const float one = std::exp(1.0F);
  std::vector<Value> kept;  // so that the input comes at other addresses
  for (int round = 0; round < 4; ++round) {
    Value in[] = {floats(device, {0, 1, float(round % 2)})};
    kept.push_back(in[0]);
    CHECK(read(run(*plan, ctx, in)[0]) == std::vector<float>{2, 2 * one, round % 2 ? 2 * one : 2});
  }
}

TEST_CASE("a program draws other numbers at each run") {
  const Device device = full_device();
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {64});
  Operand y = g.op("dropout", {x}, {{"p", 0.5}, {"training", true}, {"generator", RandomKey{0, 0}}});
  for (const char* op : {"exp", "neg", "tanh", "sin", "cos"}) y = g.op(op, {y});
  const auto plan = make_plan(g.done({y}));
  REQUIRE(plan->segments.size() == 1);
  Context ctx;
  Value in[] = {make_filled({DType::kFloat32, device, {64}}, 1)};
  std::vector<std::vector<float>> seen;
  for (uint64_t round = 0; round < 4; ++round) {
    const RandomKey state{7, round / 2};
    seen.push_back(read(run(*plan, ctx, in, {&state, 1})[0]));
  }
  CHECK(seen[0] == seen[1]);
  CHECK(seen[2] == seen[3]);
  CHECK(seen[1] != seen[2]);
}

TEST_CASE("the late error of a step on a device has the step's line") {
  const Device device = full_device();
  Context ctx;
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {3}), i = input_on(g, device, "i", {1}, DType::kInt64);
  const Operand row = g.op("take", {x, i});
  g.graph.lines.push_back("model.lua:12");
  g.graph.nodes.back().line = 0;
  const auto plan = make_plan(g.done({row}));
  Value index = make_filled({DType::kInt64, device, {1}}, 9);
  Value in[] = {floats(device, {1, 2, 3}), index};
  const Values out = run(*plan, ctx, in);
  std::string text;
  try {
    read(out[0]);
  } catch (const PositionedError& e) {
    text = e.what();
  }
  CHECK_MESSAGE(text.find("model.lua:12: take: ") == 0, text);
}

TEST_CASE("anomaly detection reads device memory") {
  const Device device = full_device();
  Context ctx;
  ctx.detect_anomaly = true;
  GraphSketch g;
  const Graph graph = g.done({g.op("log", {input_on(g, device, "x", {2})})});
  Value in[] = {floats(device, {1, -1})};
  const std::string type = "float32 2 " + name_of(device);
  const std::string text = "log: made a NaN: x = " + type + " in -1..1; out = " + type + " in 0..0, 1 NaN";
  CHECK_THROWS_WITH_AS(run(*make_plan(graph), ctx, in), text.c_str(), Error);
}

namespace {

size_t on_host(const Graph& graph) {
  return size_t(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return std::any_of(node.types.begin(), node.types.end(), [](const Type& t) { return t.device.is_cpu(); });
  }));
}

// x = x * i while the sum of x is less than 10, as a trace has it: the host decides. `counts`: the body computes i on
// the host. Returns the loop's result, the number of steps on the device and, if `returns_steps`, that on the host.
Graph loop_on(Device device, bool counts, bool returns_steps) {
  const auto less = [](GraphSketch& g, Operand x) {
    return g.op("to", {g.op("lt", {g.op("sum", {x}), Operand::immediate(10)})}, {{"device", Device{}}});
  };
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {3});
  BodySketch body({{3}});
  body.graph.nodes[1].types[0].device = device;
  Operand i = body.in[0];
  if (counts) i = body.op("add", {i, Operand::immediate(0)});
  const Operand y = body.op("mul", {body.in[1], body.op("to", {i}, {{"device", device}})});
  LoopForm form = loop_form(0, 1, 8);
  form.conditional = true;
  const Operand flag = less(body, y);
  const size_t loop = add_loop(g, form, {less(g, x), x}, {body.done({flag, y})});
  const Operand steps = g.op("to", {Operand::of(loop)}, {{"device", device}});
  if (returns_steps) return g.done({Operand::of(loop, 1), steps, Operand::of(loop)});
  return g.done({Operand::of(loop, 1), steps});
}

}  // namespace

TEST_CASE("place: what a loop decides by and counts stays on its device") {
  const Device device = full_device();
  for (const bool counts : {false, true})
    for (const bool returns_steps : {false, true}) {
      const Graph before = loop_on(device, counts, returns_steps), after = place(before);
      verify(after);
      const auto loop =
          std::find_if(after.nodes.begin(), after.nodes.end(), [](const Node& n) { return is_control(n); });
      CHECK(on_host(*body_at(*loop, 0)) == (counts ? 2 : 0));
      CHECK(on_host(after) == size_t(counts || returns_steps));
      CHECK(same_graph(place(after), after));
      Context ctx;
      for (const Graph* graph : {&before, &after}) {
        const auto plan = make_plan(*graph);
        for (const float first : {1.0F, 20.0F}) {
          Value in[] = {floats(device, {first, 1, 0})};
          const Values out = run(*plan, ctx, in);
          const bool starts = first < 10;
          CHECK(read(out[0]) == std::vector<float>{starts ? 6 : first, starts ? 6.0F : 1, 0});
          int64_t steps[2] = {-1, -1};
          download(device, &steps[0], out[1].array().data(), sizeof steps[0]);
          if (returns_steps) steps[1] = *static_cast<const int64_t*>(out[2].array().data());
          CHECK(steps[0] == (starts ? 3 : 0));
          CHECK(steps[1] == (returns_steps ? steps[0] : -1));
        }
      }
    }
}

TEST_CASE("place: a predicate that a device computes is not copied") {
  const Device device = full_device();
  GraphSketch g;
  const Operand x = input_on(g, device, "x", {3});
  const Operand sum = g.op("to", {g.op("sum", {x})}, {{"dtype", DType::kBool}, {"device", Device{}}});
  BodySketch then({{3}}, false), other({{3}}, false);
  for (BodySketch* body : {&then, &other}) body->graph.nodes[0].types[0].device = device;
  const auto twice = then.done({then.op("mul", {then.in[0], Operand::immediate(2)})});
  const auto less = other.done({other.op("sub", {other.in[0], Operand::immediate(1)})});
  const Graph before = g.done({Operand::of(add_cond(g, {sum, x}, {twice, less}))}), after = place(before);
  verify(after);
  CHECK(on_host(before) == 1);
  CHECK(on_host(after) == 0);
  const auto plan = make_plan(after);
  Context ctx;
  Value some[] = {floats(device, {0.25F, 0, 0})}, none[] = {floats(device, {1, -1, 0})};
  CHECK(read(run(*plan, ctx, some)[0]) == std::vector<float>{0.5F, 0, 0});
  CHECK(read(run(*plan, ctx, none)[0]) == std::vector<float>{0, -2, -1});
}
