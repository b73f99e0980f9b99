// The input is an npz file, an archive of npy files.
#include "tests/fuzz/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pg;
  test::load_bytes(test::text_of(data, size), [](const std::string& path) {
    const NamedTensors loaded = load_npz(path), again = load_npz(path);
    test::require(again.tensors.size() == loaded.tensors.size(), "two loads differ in the number of arrays");
    for (size_t i = 0; i < loaded.tensors.size(); ++i) {
      test::require(again.tensors[i].first == loaded.tensors[i].first, "two loads differ in names");
      test::require(test::same_bytes(loaded.tensors[i].second, again.tensors[i].second), "two loads differ");
    }
  });
  return 0;
}
