// The files of stdlib/ embedded in the binary. Names are relative to stdlib/ and sorted: "nn/basic.lua",
// "data/digits.bin".
#pragma once

#include <cstddef>
#include <span>

namespace pg {

struct EmbeddedFile {
  const char* name;
  const unsigned char* data;
  size_t size;
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace pg
