// The input is a .params file of MXNet.
#include "tests/fuzz/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pg;
  test::load_bytes(test::text_of(data, size), [](const std::string& path) {
    const Params loaded = load_params(path), again = load_params(path);
    test::require(again.names == loaded.names, "two loads differ in names");
    test::require(again.arrays.size() == loaded.arrays.size(), "two loads differ in the number of arrays");
    for (size_t i = 0; i < loaded.arrays.size(); ++i)
      test::require(test::same_bytes(loaded.arrays[i], again.arrays[i]), "two loads differ");
  });
  return 0;
}
