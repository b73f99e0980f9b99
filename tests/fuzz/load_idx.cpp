// The input is an idx file, plain or gzipped.
#include "tests/fuzz/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pg;
  test::load_bytes(test::text_of(data, size), [](const std::string& path) {
    const Value value = load_idx(path);
    test::require(test::same_bytes(value, load_idx(path)), "two loads differ");
  });
  return 0;
}
