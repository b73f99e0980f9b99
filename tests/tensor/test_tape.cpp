#include <thread>

#include "tensor/memory_account.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

constexpr const char* kReleased =
    "backward: an earlier backward, finished or failed, has released the graph of this result; "
    "pass retain_graph = true to the first backward";

Value chain(Context& ctx, Value x, int length) {
  for (int i = 0; i < length; ++i) x = run(ctx, "neg", {x});
  return x;
}

// The tape drops arrays above this size when no rule reads them.
Value large(double number) { return make_filled(Type{DType::kFloat32, {}, {4096}}, number); }

}  // namespace

TEST_CASE("tape: 100000 nodes are walked and destroyed without recursion") {
  std::thread([] {
    Context ctx;
    ctx.recording = true;
    Leaf x(array({1, 2}));
    {
      Value y = chain(ctx, x.value, 100000);
      backward_from(ctx, y, {.retain_graph = true});
      CHECK(numbers(x.grad()) == Numbers{1, 1});
      backward_from(ctx, y);
      y = chain(ctx, x.value, 100000);  // destroyed without a walk
    }
    CHECK(x.node->unique() == false);
  }).join();
}

TEST_CASE("tape: nodes and arrays are counted in the account of the thread that makes them") {
  const Ref<MemoryAccount> account(new MemoryAccount(1 << 20, nullptr, nullptr));
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1, 2}));
  chain(ctx, x.value, 100);
  CHECK(account->used() == 0);
  Value y;
  {
    const ScopedAccount scope(account.get());
    y = chain(ctx, x.value, 1);
    const int64_t one = account->used();
    CHECK(one >= int64_t(sizeof(TapeNode) + sizeof(Array)));
    y = chain(ctx, std::move(y), 99);
    CHECK(account->used() == 100 * one);
    CHECK_THROWS_AS(chain(ctx, y, 5000), OutOfMemory);
    CHECK(account->used() == 100 * one);
  }
  std::thread([&] { y = Value(); }).join();
  CHECK(account->used() == 0);
  CHECK(account->unique());
}

TEST_CASE("tape: gradients of shared values add up") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({2, 3}));
  const Value square = run(ctx, "mul", {x.value, x.value});
  const Value y = run(ctx, "add", {square, run(ctx, "mul", {square, x.value})});
  ctx.recording = false;
  backward_from(ctx, y);
  CHECK(numbers(x.grad()) == Numbers{2 * 2 + 3 * 4, 2 * 3 + 3 * 9});
  CHECK(x.node->fresh);
}

TEST_CASE("tape: a second backward needs retain_graph") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({2}));
  const Value y = run(ctx, "mul", {x.value, x.value});
  backward_from(ctx, y, {.retain_graph = true});
  backward_from(ctx, y);
  CHECK(numbers(x.grad()) == Numbers{4});
  CHECK(error_text([&] { backward_from(ctx, y); }) == kReleased);
  CHECK(numbers(x.grad()) == Numbers{4});
  // The same for a new result on top of a released one.
  const Value z = run(ctx, "neg", {y});
  CHECK(error_text([&] { backward_from(ctx, z); }) == kReleased);
}

TEST_CASE("tape: the walk and the end of the graph free memory") {
  Context ctx;
  const int64_t before = Runtime::current().memory().stats().live;
  {
    Leaf x(large(2));
    ctx.recording = true;
    Value y = run(ctx, "mul", {x.value, x.value});
    Value z = run(ctx, "mul", {y, y});
    y = {};
    ctx.recording = false;
    const int64_t recorded = Runtime::current().memory().stats().live;
    backward_from(ctx, z);
    CHECK(Runtime::current().memory().stats().live <= recorded);  // y is freed, the gradient is not
    CHECK(numbers(x.grad())[0] == 32);
  }
  CHECK(Runtime::current().memory().stats().live == before);
}

TEST_CASE("tape: arrays that no rule reads are freed") {
  Context ctx;
  ctx.recording = true;
  Leaf x(large(2));
  Value y = run(ctx, "neg", {x.value});
  const int64_t live = Runtime::current().memory().stats().live;
  Value z = run(ctx, "neg", {y});
  y = {};
  CHECK(Runtime::current().memory().stats().live == live);  // y is freed, z is allocated
  backward_from(ctx, z);
  CHECK(numbers(x.grad())[0] == 1);
}

TEST_CASE("tape: gradients are written, added or ignored as requested") {
  Context ctx;
  ctx.recording = true;
  Leaf write(array({1})), add(array({1}), GradReq::kAdd), null(array({1}), GradReq::kNull);
  for (int round = 1; round <= 3; ++round) {
    const Value sum = run(ctx, "add", {run(ctx, "add", {write.value, add.value}), null.value});
    backward_from(ctx, run(ctx, "mul", {sum, Value(2.0)}));
    CHECK(numbers(write.grad()) == Numbers{2});
    CHECK(numbers(add.grad()) == Numbers{2.0 * round});
    CHECK(numbers(null.grad()) == Numbers{0});
  }
  CHECK(!null.node->fresh);
}

TEST_CASE("tape: unreached leaves keep their gradient, reached leaves without cotangent get zeros") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1, 2})), other(array({5}));
  other.node->grad->value = array({7});
  x.node->grad->value = array({7, 7});
  backward_from(ctx, run(ctx, "neg", {x.value}));
  CHECK(numbers(other.grad()) == Numbers{7});
  // A custom node that passes no cotangent on.
  Value in[] = {x.value}, out[] = {array({3})};
  record_custom(ctx, "wall", in, out, [](auto&&...) { return Values(1); });
  backward_from(ctx, out[0]);
  CHECK(numbers(x.grad()) == Numbers{0, 0});
}

TEST_CASE("tape: heads outside the tape and gradients of a wrong shape are errors") {
  Context ctx;
  CHECK(error_text([&] {
          backward_from(ctx, array({1}));
        }).starts_with("backward: this tensor was not computed under pg.record"));
  Leaf x(array({1, 2}));
  ctx.recording = true;
  const Value heads[] = {run(ctx, "neg", {x.value})}, wrong[] = {array({1, 2, 3})};
  CHECK(error_text([&] { backward(ctx, heads, wrong, {}); }) ==
        "backward: bad argument 'grad' (expected a gradient of shape 2, got 3)");
  CHECK(error_text([] {
          make_leaf(Type{DType::kInt32, {}, {2}}, GradReq::kWrite);
        }) == "attach_grad: bad argument 'x' (expected a tensor of a floating dtype, got int32 2 cpu)");
  backward_from(ctx, heads[0]);  // the failed call did not change the tape
  CHECK(numbers(x.grad()) == Numbers{-1, -1});
}

TEST_CASE("tape: gradients() does not change .grad and returns undefined for unreached values") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({3})), y(array({4})), apart(array({1}));
  const Value inner = run(ctx, "mul", {x.value, y.value});
  const Value heads[] = {run(ctx, "mul", {inner, inner})}, cotangents[] = {Value()};
  const Value wanted[] = {x.value, inner, apart.value};
  const Values grads = gradients(ctx, heads, cotangents, wanted, {});
  CHECK(numbers(grads[0]) == Numbers{2 * 12 * 4});
  CHECK(numbers(grads[1]) == Numbers{24});
  CHECK(!grads[2].defined());
  CHECK(numbers(x.grad()) == Numbers{0});
}

TEST_CASE("tape: a head may be a leaf, be wanted itself or be repeated") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({3}));
  backward_from(ctx, x.value);
  CHECK(numbers(x.grad()) == Numbers{1});
  const Value y = run(ctx, "mul", {x.value, x.value});
  const Value heads[] = {y, y}, cotangents[] = {Value(), array({10})}, wanted[] = {y, x.value, x.value};
  const Values grads = gradients(ctx, heads, cotangents, wanted, {});
  CHECK(numbers(grads[0]) == Numbers{11});
  CHECK(numbers(grads[1]) == Numbers{66});
  CHECK(numbers(grads[2]) == Numbers{66});
}

TEST_CASE("tape: nodes that were only wanted are not released") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({3}));
  const Value inner = run(ctx, "mul", {x.value, x.value});
  const Value heads[] = {run(ctx, "neg", {inner})}, cotangents[] = {Value()}, wanted[] = {inner};
  CHECK(numbers(gradients(ctx, heads, cotangents, wanted, {})[0]) == Numbers{-1});
  backward_from(ctx, inner);
  CHECK(numbers(x.grad()) == Numbers{6});
}

TEST_CASE("tape: cotangents are cast to the type of their head, and numbers fill it") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1, 2}));
  const Value heads[] = {x.value};
  const Value wide[] = {array({0.5, 0.25}, DType::kFloat64)}, number[] = {Value(3.0)};
  backward(ctx, heads, wide, {});
  CHECK(x.grad().dtype() == DType::kFloat32);
  CHECK(numbers(x.grad()) == Numbers{0.5, 0.25});
  backward(ctx, heads, number, {});
  CHECK(numbers(x.grad()) == Numbers{3, 3});
}

TEST_CASE("tape: a custom backward may return too few gradients") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1})), y(array({1}));
  Value in[] = {x.value, y.value}, out[] = {array({3})};
  record_custom(ctx, "short", in, out, [](auto&&...) { return Values{array({5})}; });
  backward_from(ctx, out[0]);
  CHECK(numbers(x.grad()) == Numbers{5});
  CHECK(numbers(y.grad()) == Numbers{0});
}

TEST_CASE("tape: derivatives of every order are exact") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({2}, DType::kFloat64));
  Value y = x.value;
  for (int i = 0; i < 4; ++i) y = run(ctx, "mul", {y, x.value});  // x^5
  double expected = 32;
  for (int order = 1; order <= 5; ++order) {
    const Value heads[] = {y}, cotangents[] = {Value()}, wanted[] = {x.value};
    y = gradients(ctx, heads, cotangents, wanted, {.retain_graph = true, .create_graph = true})[0];
    expected = expected / 2 * (6 - order);
    CHECK(item(y) == expected);
  }
}

TEST_CASE("tape: gradients of broadcast inputs are summed and cast") {
  Context ctx;
  ctx.recording = true;
  Leaf scalar(make_scalar(2, DType::kFloat64)), x(array({1, 2, 3}));
  const Value y = run(ctx, "mul", {scalar.value, x.value});
  CHECK(y.dtype() == DType::kFloat64);
  backward_from(ctx, y);
  CHECK(scalar.grad().shape() == Dims{});
  CHECK(item(scalar.grad()) == 6);
  CHECK(x.grad().dtype() == DType::kFloat32);
  CHECK(numbers(x.grad()) == Numbers{2, 2, 2});
}

TEST_CASE("tape: an input that a derivative reads is not overwritten in place") {
  Context ctx;
  ctx.recording = true;
  Leaf w(array({5}));
  Value in[2] = {array({3}), w.value};  // no other reference to the 3
  const OpDef& mul = registry().require("mul");
  const Value y = apply(ctx, mul, in, {})[0];
  backward_from(ctx, y);
  CHECK(numbers(w.grad()) == Numbers{3});
}

TEST_CASE("tape: only buffers with a single reference are reused") {
  Context ctx;
  const OpDef& mul = registry().require("mul");
  Value alone[2] = {large(3), Value(2.0)};
  const void* place = alone[0].array().data();
  CHECK(apply(ctx, mul, alone, {})[0].array().data() == place);
  Value kept = large(3), shared[2] = {kept, Value(2.0)};
  CHECK(apply(ctx, mul, shared, {})[0].array().data() != kept.array().data());
  CHECK(numbers(kept)[0] == 3);
}

TEST_CASE("tape: a failed backward leaves all gradients as they were") {
  for (int64_t n = 1;; ++n) {
    REQUIRE(n < 100);
    Context ctx;
    ctx.recording = true;
    Leaf a(array({1, 2})), b(array({3, 4}), GradReq::kAdd);
    a.node->grad->value = array({7, 7});
    b.node->grad->value = array({9, 9});
    const Value product = run(ctx, "mul", {a.value, b.value});
    const Value y = run(ctx, "mul", {product, run(ctx, "neg", {b.value})});
    fail_allocation(n);
    const std::string text = error_text([&] { backward_from(ctx, y); });
    const bool failed = allocation_failed();
    fail_allocation(0);
    CHECK(failed == !text.empty());
    if (!failed) {
      CHECK(numbers(a.grad()) == Numbers{-9, -16});
      CHECK(numbers(b.grad()) == Numbers{9 - 6, 9 - 16});
      break;
    }
    CHECK(numbers(a.grad()) == Numbers{7, 7});
    CHECK(numbers(b.grad()) == Numbers{9, 9});
    CHECK(!a.node->fresh);
  }
}

TEST_CASE("tape: a cancel request stops between two ops") {
  Context ctx;
  ctx.cancel = true;
  CHECK_THROWS_AS(run(ctx, "neg", {array({1})}), Cancelled);
  CHECK(numbers(run(ctx, "neg", {array({1})})) == Numbers{-1});
}

TEST_CASE("tape: anomaly mode names the op that made a NaN") {
  Context ctx;
  ctx.detect_anomaly = true;
  ctx.recording = true;
  Leaf x(array({0}));
  const std::string text = error_text([&] { run(ctx, "div", {x.value, x.value}); });
  CHECK(text.starts_with("div: made a NaN"));
}

namespace {

// Backward from a head, with a hook that writes down the leaves in the order of its calls.
std::vector<int> final_order(Context& ctx, std::initializer_list<Value> heads, std::span<const Leaf> leaves) {
  std::vector<int> order;
  BackwardOptions options;
  options.on_final = [&](Context&, TapeNode& leaf, Value gradient) {
    for (size_t i = 0; i < leaves.size(); ++i)
      if (leaves[i].node.get() == &leaf) order.push_back(int(i));
    return gradient;
  };
  const std::vector<Value> none(heads.size());
  backward(ctx, std::span(heads.begin(), heads.size()), none, options);
  return order;
}

}  // namespace

TEST_CASE("tape: the hook of a leaf runs as soon as its gradient is final") {
  Context ctx;
  ctx.recording = true;
  // Layer k: y = tanh(y * w[k] + b[k]). w[0] is used by the last layer too.
  std::vector<Leaf> leaves;
  for (int i = 0; i < 7; ++i) leaves.emplace_back(array({1, 2}), i == 6 ? GradReq::kNull : GradReq::kWrite);
  Value y = array({0.5, 0.25});
  for (int layer : {0, 2, 4, 0}) {
    const Value product = run(ctx, "mul", {y, leaves[size_t(layer)].value});
    y = run(ctx, "tanh", {run(ctx, "add", {product, leaves[size_t(layer + 1)].value})});
  }
  y = run(ctx, "add", {y, leaves[6].value});
  using Order = std::vector<int>;
  CHECK(final_order(ctx, {y}, leaves) == Order{5, 4, 3, 2, 1, 0});
}

TEST_CASE("tape: leaves that one entry makes final come in the order of its inputs, heads without readers first") {
  Context ctx;
  ctx.recording = true;
  std::vector<Leaf> leaves;
  for (int i = 0; i < 40; ++i) leaves.emplace_back(array({1, 2}));
  std::vector<Value> parts;
  for (int i = 39; i > 1; --i) parts.push_back(leaves[size_t(i)].value);
  parts.push_back(leaves[20].value);
  const OpDef& op = registry().require("cat");
  const Value all = apply(ctx, op, parts, make_attrs(op))[0];
  std::vector<int> expected = {1, 0};
  for (int i = 39; i > 1; --i)
    if (i != 20) expected.push_back(i);
  expected.push_back(20);
  CHECK(final_order(ctx, {leaves[1].value, all, leaves[0].value, leaves[39].value}, leaves) == expected);
}

TEST_CASE("tape: the hook of a leaf sees all of its gradient and may replace it") {
  Context ctx;
  ctx.recording = true;
  Leaf x(array({1, 2})), sum(array({3}), GradReq::kAdd), unread(array({5}));
  sum.node->grad->value = array({100});
  Value y = run(ctx, "mul", {x.value, x.value});
  y = run(ctx, "add", {run(ctx, "mul", {y, x.value}), sum.value});
  Value in[] = {unread.value}, out[] = {array({3})};
  record_custom(ctx, "wall", in, out, [](auto&&...) { return Values(1); });
  y = run(ctx, "add", {y, out[0]});
  const auto square = [](Context& c, TapeNode&, Value gradient) {
    CHECK(!c.recording);
    return run(c, "mul", {gradient, gradient});
  };
  backward_from(ctx, y, {.retain_graph = true, .on_final = square});
  CHECK(numbers(x.grad()) == Numbers{9, 144});
  CHECK(numbers(sum.grad()) == Numbers{102.0 * 102});
  CHECK(numbers(unread.grad()) == Numbers{0});
  // A hook that throws, or that returns another type, leaves every gradient as it was.
  int calls = 0;
  const auto second_fails = [&](Context&, TapeNode&, Value gradient) {
    if (++calls == 2) throw Error("no peer");
    return gradient;
  };
  CHECK(error_text([&] { backward_from(ctx, y, {.retain_graph = true, .on_final = second_fails}); }) == "no peer");
  const auto other = [](Context&, TapeNode&, Value) { return array({1, 2, 3}); };
  CHECK(error_text([&] { backward_from(ctx, y, {.retain_graph = true, .on_final = other}); }) ==
        "grad: bad argument 'value' (expected a tensor of type float32 1 cpu, got float32 3 cpu)");
  CHECK(numbers(x.grad()) == Numbers{9, 144});
  CHECK(numbers(sum.grad()) == Numbers{102.0 * 102});
}

}  // namespace pg::test
