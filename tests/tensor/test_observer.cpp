// Observers of ops: what they see. Ranges of arrays.
#include "tensor/observer.h"

#include "tensor/range.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

// Writes down the names of what begins and ends, and whether it gave something.
class Log final : public Observer {
 public:
  void begin(Work& work) noexcept override { text += "<" + std::string(work.name); }
  void end(Work& work) noexcept override { text += work.out.empty() ? "!>" : work.is_view ? "v>" : ">"; }
  std::string text;
};

}  // namespace

TEST_CASE("observer: sees ops, those inside of ops, views and errors") {
  Context ctx;
  Log log;
  ctx.observer = &log;
  const Value x = run(ctx, "neg", {array({1, 2})});
  CHECK(log.text == "<neg>");
  log.text.clear();
  run(ctx, "square", {x});
  CHECK(log.text == "<square>");
  log.text.clear();
  const Value row = run(ctx, "unsqueeze", {x}, {{"dim", int64_t(1)}});
  CHECK(log.text == "<unsqueezev>");
  log.text.clear();
  run(ctx, "inner", {x, x});
  CHECK(log.text.starts_with("<inner<"));
  CHECK(log.text.ends_with(">>"));
  log.text.clear();
  CHECK_THROWS_AS(run(ctx, "add", {x, array({1, 2, 3})}), Error);
  CHECK(log.text == "<add!>");
  CHECK(ctx.work == nullptr);
  ctx.observer = nullptr;
  run(ctx, "neg", {x});
  CHECK(log.text == "<add!>");
}

TEST_CASE("observer: backward is one piece of work") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1, 2}));
  const Value y = run(ctx, "neg", {x.value});
  Log log;
  ctx.observer = &log;
  backward_from(ctx, y, {});
  CHECK(log.text.starts_with("<backward<"));
  CHECK(log.text.ends_with("!>"));
}

TEST_CASE("every product and linear map counts its multiply-adds") {
  for (const OpDef* op : registry().ops()) {
    const bool counts = op->multiply_adds != nullptr;
    if (op->has(kProduct) || op->has(kChannels)) CHECK_MESSAGE(counts, op->name);
  }
}

TEST_CASE("ranges") {
  const double nan = std::nan(""), inf = INFINITY;
  const auto describe = [](const Value& v, bool elements = false) {
    const Array& a = v.array();
    return describe_range({&a.type, &a.strides, a.data()}, elements);
  };
  CHECK(describe(array({3, nan, -1, inf})) == "float32 4 in -1..3, 1 NaN, 1 infinite");
  CHECK(describe(array({nan, nan})) == "float32 2, 2 NaN");
  CHECK(describe(array({1, 2}), true) == "float32 2 {1, 2}");
  CHECK(describe(array({1, 2, 3, 4, 5}), true) == "float32 5 in 1..5");
  Context ctx;
  const Value matrix = run(ctx, "reshape", {array({1, 2, 3, 4, 5, 6})}, {{"shape", Ints{2, 3}}});
  CHECK(describe(run(ctx, "select", {matrix}, {{"dim", int64_t(2)}, {"index", int64_t(2)}})) == "float32 2 in 2..5");
}

}  // namespace pg::test
