#include <cmath>
#include <limits>
#include <random>

#include "tensor/dtype.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

using enum DType;
constexpr DType kAll[] = {kBool, kUInt8, kInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
static_assert(std::size(kAll) == kDTypeCount);

template <class T>
T from_bits(uint32_t bits) {
  T value;
  value.bits = uint16_t(bits);
  return value;
}

// Every bit pattern survives a round trip. Numbers between two values are rounded to the nearer one, and the midpoint
// to the even one.
template <class T>
void check_rounding(uint32_t infinity) {
  int wrong = 0;
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t bits = 0; bits <= infinity; ++bits)
      wrong += T(float(from_bits<T>(sign | bits))).bits != (sign | bits);
    for (uint32_t bits = infinity + 1; bits < 0x8000; ++bits) {
      const float nan = from_bits<T>(sign | bits);
      wrong += !std::isnan(nan) || !std::isnan(float(T(nan)));
    }
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const float low = from_bits<T>(sign | bits), high = from_bits<T>(sign | (bits + 1));
      const float middle = float((double(low) + double(high)) / 2);
      wrong += T(middle).bits != (sign | (bits + bits % 2));
      wrong += T(std::nextafter(middle, low)).bits != (sign | bits);
      wrong += T(std::nextafter(middle, high)).bits != (sign | (bits + 1));
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("float16: all bit patterns survive and all roundings are to nearest even") {
  check_rounding<Half>(0x7c00);
  CHECK(float(Half(65504.f)) == 65504.f);
  CHECK(float(Half(65519.99f)) == 65504.f);
  CHECK(std::isinf(float(Half(65520.f))));
  CHECK(std::isinf(float(Half(3e38f))));
  CHECK(float(Half(0x1p-24f)) == 0x1p-24f);
  CHECK(float(Half(0x1p-25f)) == 0.f);
  CHECK(float(Half(0x1.8p-25f)) == 0x1p-24f);
  CHECK(std::signbit(float(Half(-0.f))));
  CHECK(std::signbit(float(Half(-1e-30f))));
}

TEST_CASE("bfloat16: all bit patterns survive and all roundings are to nearest even") {
  check_rounding<BFloat16>(0x7f80);
  CHECK(std::isinf(float(BFloat16(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(float(BFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("dtypes: names convert back to their dtype") {
  for (DType t : kAll) CHECK(dtype_from_name(name_of(t)) == t);
  for (const char* bad : {"", "float", "Float32", "float32 ", "half", "double"}) CHECK(!dtype_from_name(bad));
}

TEST_CASE("two tensors are promoted to their common dtype") {
  const auto check = [](DType a, DType b, DType expected) {
    CHECK_MESSAGE(promote(a, b) == expected, name_of(a), name_of(b));
    CHECK_MESSAGE(promote(b, a) == expected, name_of(b), name_of(a));
  };
  for (DType t : kAll) {
    check(t, t, t);
    check(kBool, t, t);
    check(kFloat64, t, kFloat64);
    if (t != kFloat64) check(kFloat32, t, kFloat32);
  }
  check(kUInt8, kInt8, kInt32);
  for (DType small : {kUInt8, kInt8}) {
    check(small, kInt32, kInt32);
    check(small, kInt64, kInt64);
  }
  check(kInt32, kInt64, kInt64);
  for (DType integer : {kUInt8, kInt8, kInt32, kInt64})
    for (DType half : {kFloat16, kBFloat16}) check(integer, half, half);
  check(kFloat16, kBFloat16, kFloat32);
}

TEST_CASE("a number adapts to the dtype of the tensor") {
  for (DType t : kAll) {
    if (is_float(t)) {
      for (double n : {0.0, 1.0, 1.5, 1e300, -1e9, double(NAN), double(INFINITY)}) CHECK(promote_number(t, n) == t);
    } else {
      for (double n : {0.5, -1.5, double(NAN), double(INFINITY)}) CHECK(promote_number(t, n) == kFloat32);
      CHECK(promote_number(t, 1) == (t == kBool ? kInt64 : t));
    }
  }
  CHECK(promote_number(kBool, 7) == kInt64);
  CHECK(promote_number(kUInt8, 255) == kUInt8);
  for (double n : {256.0, -1.0}) CHECK(!promote_number(kUInt8, n));
  for (double n : {128.0, -129.0}) CHECK(!promote_number(kInt8, n));
  CHECK(promote_number(kInt32, -0x1p31) == kInt32);
  CHECK(!promote_number(kInt32, 0x1p31));
  CHECK(promote_number(kInt64, -0x1p63) == kInt64);
  CHECK(!promote_number(kInt64, 0x1p63));
  CHECK(!promote_number(kBool, 0x1p63));
}

TEST_CASE("ops with float results turn integers into float32") {
  for (DType t : kAll) CHECK(float_result(t) == (is_float(t) ? t : kFloat32));
}

TEST_CASE("elements: stored numbers load again") {
  alignas(8) char slot[8];
  for (DType t : kAll)
    for (double n : {0.0, 1.0, 2.0, 100.0, -100.0}) {
      if (!holds(t, n)) continue;
      store_number(t, slot, n);
      CHECK(load_number(t, slot) == n);
    }
  store_number(kBool, slot, 0.25);
  CHECK(load_number(kBool, slot) == 1);
  store_number(kInt32, slot, -2.75);
  CHECK(load_number(kInt32, slot) == -2);
  store_number(kInt64, slot, 0x1p62);
  CHECK(load_number(kInt64, slot) == 0x1p62);
}

TEST_CASE("ops use the promoted dtype") {
  Context ctx;
  for (DType a : kAll)
    for (DType b : kAll) CHECK(run(ctx, "add", {array({1}, a), array({0}, b)}).dtype() == promote(a, b));
  CHECK(run(ctx, "add", {array({1}, kInt32), Value(0.5)}).dtype() == kFloat32);
  CHECK(run(ctx, "add", {array({1}, kBool), Value(2)}).dtype() == kInt64);
  CHECK(run(ctx, "div", {array({1}, kInt32), Value(2)}).dtype() == kFloat32);
  CHECK(error_text([&] {
          run(ctx, "add", {array({1}, kUInt8), Value(256)});
        }) == "add: bad argument 'y' (expected a number that uint8 can hold, got 256)");
}

}  // namespace pg::test
