// Runs every op that has a trait about memory (tensor/op.h), and checks which memory it reads and what its result
// contains.
#include <algorithm>
#include <cstring>

#include "tensor/runtime.h"
#include "tensor/buffer.h"
#include "tests/tensor/rows.h"

namespace pg::test {

TEST_CASE("traits: copies have the elements of the input, as a view where possible") {
  each_op([](const OpDef& op) { return op.has(kCopies); },
          [](const OpDef* op) {
            EXPECT((op->has(kView) && op->view), "no view");
            bool shown = false, copied = false;
            Context ctx;
            for (DType t : dtypes_of(op->inputs[0]))
              for (DType wanted : {t, DType::kFloat64}) {
                const Value x = mixed(t, {2, 3}), turned = run(ctx, "t", {x});
                Attrs attrs = some_attrs(*op, {});
                const int at = op->attr_index("dtype");
                if (at >= 0) attrs[size_t(at)] = wanted;
                for (const Value& from : {x, turned}) {
                  const auto y = result(*op, {from}, attrs);
                  REQUIRE(y);
                  EXPECT(y->shape() == from.shape(), "another shape");
                  EXPECT(numbers(*y) == numbers(from), name_of(t), " as ", name_of(y->dtype()));
                  const bool same = y->array().data() == x.array().data();
                  EXPECT((!same || (y->dtype() == t && y->array().strides == from.array().strides)), "other elements");
                  shown |= same, copied |= !same;
                }
              }
            EXPECT(shown, "never a view");
            EXPECT(copied, "never a copy");
          });
}

TEST_CASE("traits: cheap ops read at most twice their result, allocate nothing else and repeat their bits") {
  each_op([](const OpDef& op) { return op.has(kCheap); },
          [](const OpDef* op) {
            EXPECT(!(op->traits & (kRandom | kEffect | kUnset | kDynamicShape | kReduction)), "not the same again");
            for (DType t : {DType::kFloat32, DType::kFloat64}) {
              std::vector<Value> inputs;
              for (size_t i = 0; i < op->inputs.size(); ++i)
                inputs.push_back(mixed(t, op->has(kPointwise) || i == 0 ? Dims{64, 32} : Dims{32}));
              const auto first = applied(*op, inputs, some_attrs(*op, {}));
              REQUIRE(first);
              int64_t read = 0;
              for (const Value& v : inputs) read += v.numel();
              const int64_t small = (*first)[0].numel() / 4;  // for statistics and weights
              EXPECT(read <= 2 * (*first)[0].numel() + small, "reads ", read, " elements");
              const int64_t before = Runtime::current().memory().stats().allocations;
              const auto again = applied(*op, inputs, some_attrs(*op, {}));
              const int64_t allocated = Runtime::current().memory().stats().allocations - before;
              if (op->has(kPointwise)) EXPECT(allocated == 1, allocated, " allocations");
              EXPECT(bits((*again)[0]) == bits((*first)[0]), name_of(t));
            }
          });
}

namespace {

// Runs f when newly allocated memory contains this byte: blocks of all sizes up to 4 KiB are freed with it first.
template <class F>
auto in_memory_of(int byte, const F& f) {
  {
    std::vector<Value> blocks;
    for (int64_t size = 64; size <= 4096; size += 64)
      for (int k = 0; k < 6; ++k) {
        blocks.push_back(make_array(Type{DType::kUInt8, {}, {size}}));
        std::memset(blocks.back().array().data(), byte, size_t(size));
      }
  }
  return f();
}

}  // namespace

TEST_CASE("traits: only ops marked as unset return undefined elements") {
  size_t unset = 0;
  for (const OpDef* op : registry().ops()) {
    if (op->traits & (kRandom | kEffect | kBodies)) continue;
    bool differs = false;
    for (const Dims& shape : {Dims{2, 2}, Dims{2, 3, 4, 5}, Dims{3}}) {
      std::vector<Value> inputs;
      for (const InputDef& input : op->inputs)
        if (input.arity == Arity::kOptional)
          inputs.push_back(Value());
        else
          inputs.push_back(tensor(accepts(input.dtypes, DType::kFloat32) ? DType::kFloat32 : dtypes_of(input)[0], shape,
                                  [](int64_t) { return 1.0; }));
      const auto run = [&](int byte) -> std::string {
        return in_memory_of(byte, [&]() -> std::string {
          try {
            const auto all = applied(*op, inputs, some_attrs(*op, {2, 2}));
            std::string out;
            if (all)
              for (const Value& v : *all)
                if (v.defined()) out += bits(v);
            return out;
          } catch (const Error&) {
            return "";
          }
        });
      };
      differs |= run(0x11) != run(0x22);
    }
    EXPECT(differs == op->has(kUnset), differs ? "other elements in other memory" : "the same elements in any memory");
    unset += differs;
  }
  CHECK(unset > 0);
}

TEST_CASE("traits: indexing reads elements of x and writes only the indexed elements") {
  each_op([](const OpDef& op) { return op.has(kIndexing); },
          [](const OpDef* op) {
            const Value x = tensor(DType::kFloat32, {3, 3}, [](int64_t i) { return double(i + 1); });
            const std::string before = bits(x);
            std::vector<Value> inputs{x};
            for (size_t i = 1; i < op->inputs.size(); ++i)
              inputs.push_back(op->inputs[i].dtypes == kBoolOnly   ? array({1, 0, 1}, DType::kBool)
                               : op->inputs[i].dtypes == kIntegral ? array({1, 3}, DType::kInt64)
                                                                   : make_scalar(100, DType::kFloat32));
            Attrs attrs = some_attrs(*op, {1, 1});  // the first position of each dim
            if (op->attr_index("step") >= 0) attrs[size_t(op->attr_index("drop"))] = Ints{0, 0};
            const auto all = applied(*op, inputs, attrs);
            REQUIRE(all);
            EXPECT(bits(x) == before, "x changed");
            const auto* data = static_cast<const char*>(x.array().data());
            for (const Value& y : *all) {
              if (op->has(kView)) {
                const auto* at = static_cast<const char*>(y.array().data());
                EXPECT((at >= data && at < data + 36), "a read that is no view");
                EXPECT(y.numel() < x.numel(), "all of x");
                continue;
              }
              EXPECT(op->has(kHidden), "neither a view nor hidden");
              if (!op->has(kInPlace)) {  // a read that copies
                const std::vector<double> all_of_x = numbers(x);
                EXPECT(y.numel() < x.numel(), "all of x");
                for (double v : numbers(y))
                  EXPECT(std::find(all_of_x.begin(), all_of_x.end(), v) != all_of_x.end(), v, " is no element of x");
                continue;
              }
              EXPECT(y.type() == x.type(), "another type");
              const std::vector<double> old = numbers(x), now = numbers(y);
              size_t written = 0;
              for (size_t i = 0; i < now.size(); ++i) {
                EXPECT((now[i] == old[i] || now[i] == 100), "element ", i);
                written += now[i] != old[i];
              }
              EXPECT((written > 0 && written < now.size()), written, " elements written");
            }
          });
}

}  // namespace pg::test
