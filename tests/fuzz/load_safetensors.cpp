// The input is a safetensors file. Content that loads is saved and loaded again, and must be the same.
#include "tests/fuzz/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pg;
  test::load_bytes(test::text_of(data, size), [](const std::string& path) {
    const NamedTensors loaded = load_safetensors(path);
    static const std::string copy = fmt::format("/tmp/perigee-fuzz-{}.safetensors", getpid());
    save_safetensors(copy, loaded);
    const NamedTensors again = load_safetensors(copy);
    unlink(copy.c_str());
    test::require(again.metadata == loaded.metadata, "metadata changed");
    test::require(again.tensors.size() == loaded.tensors.size(), "the number of tensors changed");
    for (const auto& tensor : loaded.tensors) {
      const auto same = [&](const auto& other) {
        return other.first == tensor.first && test::same_bytes(other.second, tensor.second);
      };
      test::require(std::any_of(again.tensors.begin(), again.tensors.end(), same), "a tensor changed");
    }
  });
  return 0;
}
