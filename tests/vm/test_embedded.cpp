#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "vm/embedded.h"

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the embedded stdlib is sorted and equals its source folder") {
  const char* previous = "";
  REQUIRE(!pg::embedded_files().empty());
  for (const pg::EmbeddedFile& file : pg::embedded_files()) {
    CHECK(std::strcmp(previous, file.name) < 0);
    previous = file.name;
    const std::string bytes = read(std::string(PERIGEE_SOURCE_DIR "/stdlib/") + file.name);
    REQUIRE(bytes.size() == file.size);
    CHECK(std::memcmp(bytes.data(), file.data, file.size) == 0);
  }
}
