#include "tensor/shape.h"
#include "tests/tensor/arrays.h"

namespace pg::test {

TEST_CASE("dims: a list holds at most 12 dims") {
  Dims d;
  CHECK(d.empty());
  for (int i = 0; i < kMaxRank; ++i) d.push_back(i);
  CHECK(d.size() == 12);
  CHECK(error_text([&] { d.push_back(0); }) == "a tensor has at most 12 dims");
  CHECK(d.size() == 12);
  CHECK_THROWS_AS(d.insert(0, 1), Error);
  d.erase(0);
  CHECK(d[0] == 1);
  CHECK(d.back() == 11);
  d.insert(0, 99);
  CHECK(d[0] == 99);
  CHECK(d[1] == 1);
  d.pop_back();
  CHECK(d.back() == 10);
  const Dims copy = d;
  CHECK(copy == d);
  CHECK(!(copy == Dims{}));
  CHECK(Dims(3, 7) == Dims{7, 7, 7});
  const std::vector<int64_t> thirteen(13, 1);
  CHECK_THROWS_AS(Dims{std::span<const int64_t>(thirteen)}, Error);
}

TEST_CASE("shapes: element counts are checked") {
  CHECK(checked_numel("f", {}) == 1);
  CHECK(checked_numel("f", {2, 3, 4}) == 24);
  CHECK(checked_numel("f", {2, 0, 4}) == 0);
  CHECK(checked_numel("f", {int64_t(1) << 56}) == int64_t(1) << 56);
  CHECK(error_text([] {
          checked_numel("f", {2, -1});
        }) == "f: bad argument 'shape' (expected sizes that are not negative, got 2x-1)");
  CHECK(error_text([] {
          checked_numel("f", {0, -1});
        }) == "f: bad argument 'shape' (expected sizes that are not negative, got 0x-1)");
  CHECK_THROWS_AS(checked_numel("f", {(int64_t(1) << 56) + 1}), Error);
  const int64_t large = int64_t(1) << 40;
  CHECK_THROWS_AS(checked_numel("f", {large, large}), Error);
  CHECK_THROWS_AS(checked_numel("f", {large, large, 0}), Error);
  CHECK_THROWS_AS(checked_numel("f", {0, large, large, large}), Error);
}

TEST_CASE("sizes: products and sums saturate") {
  const int64_t large = int64_t(1) << 40;
  CHECK(times(3, -4) == -12);
  CHECK(times(large, large) == kMostSize);
  CHECK(times(-large, large) == -kMostSize);
  CHECK(times(kMostSize, 0) == 0);
  CHECK(times(INT64_MIN, -1) == kMostSize);
  CHECK(plus(kMostSize, kMostSize) == kMostSize);
  CHECK(plus(INT64_MIN, INT64_MIN) == -kMostSize);
  CHECK(plus(INT64_MAX, -1) == kMostSize);
  CHECK(plus(5, -7) == -2);
  CHECK(error_text([&] { numel({large, large}); }).find("too many elements") != std::string::npos);
  CHECK(error_text([] { numel({2, -1}); }).find("not negative") != std::string::npos);
}

TEST_CASE("bytes: sizes saturate") {
  CHECK(Bytes::of(3, 4).count() == 12);
  CHECK(Bytes::of(int64_t(1) << 61, 4) == Bytes(uint64_t(kMostSize)));
  CHECK(Bytes::of(-1, 4) == Bytes(uint64_t(kMostSize)));
  CHECK(Bytes(~uint64_t(0)) == Bytes(uint64_t(kMostSize)));
  CHECK(Bytes(uint64_t(kMostSize)) + Bytes(uint64_t(kMostSize)) == Bytes(uint64_t(kMostSize)));
  CHECK(Bytes(65).aligned(64) == Bytes(128));
  CHECK(Bytes(uint64_t(kMostSize)).aligned(64) == Bytes(uint64_t(kMostSize)));
  CHECK_THROWS_AS(Buffer::allocate({}, 8 * Bytes(uint64_t(kMostSize))), OutOfMemory);
}

TEST_CASE("shapes: strides are row-major") {
  CHECK(contiguous_strides({}) == Dims{});
  CHECK(contiguous_strides({2, 3, 4}) == Dims{12, 4, 1});
  CHECK(is_contiguous({}, {}));
  CHECK(is_contiguous({2, 3}, {3, 1}));
  CHECK(!is_contiguous({2, 3}, {1, 2}));
  CHECK(is_contiguous({1, 3}, {77, 1}));
  CHECK(is_contiguous({3, 1}, {1, 77}));
  CHECK(is_contiguous({0, 3}, {5, 7}));
  CHECK(is_contiguous({3, 0}, {5, 7}));
  CHECK(!is_contiguous({2, 3}, {0, 1}));
  CHECK(!is_contiguous({2}, {2}));
}

TEST_CASE("shapes: text joins the sizes with x") {
  CHECK(to_string(Dims{}) == "scalar");
  CHECK(to_string(Dims{5}) == "5");
  CHECK(to_string(Dims{2, 0, 3}) == "2x0x3");
  CHECK(to_string(Type{DType::kFloat32, {}, {2, 3}}) == "float32 2x3 cpu");
}

TEST_CASE("shapes: broadcasting follows NumPy") {
  const auto joined = [](const Dims& a, const Dims& b) {
    Dims out, back;
    CHECK(broadcast(a, b, &out));
    CHECK(broadcast(b, a, &back));
    CHECK(out == back);
    return out;
  };
  CHECK(joined({}, {}) == Dims{});
  CHECK(joined({}, {2, 3}) == Dims{2, 3});
  CHECK(joined({3}, {2, 3}) == Dims{2, 3});
  CHECK(joined({2, 1}, {1, 3}) == Dims{2, 3});
  CHECK(joined({4, 1, 3}, {2, 1}) == Dims{4, 2, 3});
  CHECK(joined({0}, {1}) == Dims{0});
  CHECK(joined({2, 0}, {1}) == Dims{2, 0});
  Dims out;
  CHECK(!broadcast({2}, {3}, &out));
  CHECK(!broadcast({0}, {2}, &out));
  CHECK(!broadcast({2, 3}, {2, 1, 1, 2}, &out));
  CHECK(broadcast_strides({3}, {1}, {2, 3}) == Dims{0, 1});
  CHECK(broadcast_strides({2, 1}, {1, 1}, {4, 2, 3}) == Dims{0, 1, 0});
  CHECK(broadcast_strides({}, {}, {2}) == Dims{0});
}

TEST_CASE("shapes: user dims count from 1 or from the end") {
  CHECK(dim_index("f", "dim", 1, 3) == 0);
  CHECK(dim_index("f", "dim", 3, 3) == 2);
  CHECK(dim_index("f", "dim", -1, 3) == 2);
  CHECK(dim_index("f", "dim", -3, 3) == 0);
  CHECK(error_text([] { dim_index("f", "dim", 0, 3); }) ==
        "f: bad argument 'dim' (expected a dim from 1 to 3 or -3 to -1, got 0; dims count from 1)");
  for (int64_t bad : {int64_t(4), int64_t(-4), INT64_MIN, INT64_MAX})
    CHECK_THROWS_AS(dim_index("f", "dim", bad, 3), Error);
}

TEST_CASE("ops broadcast values and shapes alike") {
  Context ctx;
  const Value scalar = make_scalar(10, DType::kFloat32), empty = make_array(Type{DType::kFloat32, {}, {0}});
  CHECK(numbers(run(ctx, "add", {array({1, 2}), scalar})) == Numbers{11, 12});
  CHECK(run(ctx, "add", {empty, scalar}).shape() == Dims{0});
  CHECK(error_text([&] {
          run(ctx, "add", {array({1, 2}), array({1, 2, 3})});
        }) == "add: bad argument 'y' (expected a shape that broadcasts with 2, got 3)");
}

}  // namespace pg::test
