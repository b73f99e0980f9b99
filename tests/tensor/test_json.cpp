#include "tensor/io/json.h"

#include <cmath>
#include <limits>

#include "tests/tensor/arrays.h"
#include "tests/tensor/files.h"

namespace pg::test {

TEST_CASE("numbers and strings of the JSON reader") {
  auto number = [](const std::string& text) { return JsonReader("t", text).number(); };
  CHECK(number("-0.0") == 0);
  CHECK(std::signbit(number("-0.0")));
  CHECK(number(" 1e3") == 1000);
  CHECK(std::isnan(number("\"nan\"")));
  CHECK(number("\"-inf\"") == -std::numeric_limits<double>::infinity());
  for (const char* bad : {"", "01x", "+1", ".5", "1.", "1e", "--1", "\"infinity\"", "1e999", "NaN"})
    CHECK_MESSAGE(!error_of([&] {
                     JsonReader r("t", bad);
                     r.number();
                   }).empty(),
                  bad);
  CHECK(JsonReader("t", "-9223372036854775808").integer(std::numeric_limits<int64_t>::min(), 0) ==
        std::numeric_limits<int64_t>::min());
  CHECK(JsonReader("t", "18446744073709551615").natural() == std::numeric_limits<uint64_t>::max());
  CHECK(JsonReader("t", R"("a\u00e9\ud83d\ude00\n")").string() == "a\xc3\xa9\xf0\x9f\x98\x80\n");
  for (const char* bad : {"\"", "\"\\", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\x80\"",
                          "\"\xed\xa0\x80\"", "\"\n\"", "\"\\x\""})
    CHECK_MESSAGE(contains(error_of([&] { JsonReader("t", bad).string(); }), "load: t: at byte "), bad);
}

}  // namespace pg::test
