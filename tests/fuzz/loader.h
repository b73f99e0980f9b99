// Shared by the libFuzzer targets. A target loads its input as a file and checks that it throws an ordinary error or
// returns valid content.
#pragma once
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg::test {

// Larger allocations fail: a small file must not need them, and they would slow the fuzzer down.
inline constexpr size_t kLargestRequest = size_t(4) << 20;

// A file in memory that is rewritten for each input.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("perigee-fuzz", 0)), path_(fmt::format("/proc/self/fd/{}", fd_)) {
    if (fd_ < 0) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& put(std::string_view bytes) {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size())) std::abort();
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

inline void require(bool holds, std::string_view what) {
  if (holds) return;
  fmt::print(stderr, "perigee: {}\n", what);
  std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline bool same_bytes(const Value& a, const Value& b) {
  if (a.dtype() != b.dtype() || !std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end()))
    return false;
  const size_t bytes = size_t(a.numel()) * size_t(size_of(a.dtype()));
  return bytes == 0 || std::memcmp(a.array().data(), b.array().data(), bytes) == 0;
}

// Calls load(path). Errors must name the file, and running out of memory must be an error too.
template <class Load>
void load_bytes(std::string_view bytes, Load&& load) {
  static MemoryFile file;
  const std::string& path = file.put(bytes);
  limit_allocation(kLargestRequest);
  try {
    load(path);
  } catch (const OutOfMemory&) {
  } catch (const Error& e) {
    require(std::string_view(e.what()).starts_with("load: " + path + ": "), e.what());
  }
}

}  // namespace pg::test
