// Compiled kernels on disk. A file is written under a temporary name and renamed, so that readers see whole files.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tensor/cuda/compiler.h"
#include "tensor/settings.h"

namespace pg::cuda {
namespace {

namespace fs = std::filesystem;

struct Head {
  char magic[8] = {'p', 'e', 'r', 'i', 'g', 'e', 'e', '1'};
  uint64_t bytes = 0, sum = 0;
};

uint64_t sum_of(const std::vector<char>& data) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : data) sum = (sum ^ uint8_t(c)) * 0x100000001b3u;
  return sum;
}

// Empty: there is no folder.
fs::path folder() {
  if (const char* cache = setting("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "perigee";
  if (const char* home = setting("HOME"); home && *home) return fs::path(home) / ".cache" / "perigee";
  return {};
}

}  // namespace

std::vector<char> read_cached(const std::string& key) {
  std::error_code failed;
  const fs::path path = folder() / key;
  const uint64_t size = fs::file_size(path, failed);
  if (failed || size <= sizeof(Head)) return {};
  std::ifstream file(path, std::ios::binary);
  Head head;
  file.read(reinterpret_cast<char*>(&head), sizeof head);
  if (!file || std::memcmp(head.magic, Head().magic, sizeof head.magic) || head.bytes != size - sizeof head) return {};
  std::vector<char> data(head.bytes);
  file.read(data.data(), std::streamsize(data.size()));
  if (!file || sum_of(data) != head.sum) return {};
  return data;
}

void write_cached(const std::string& key, const std::vector<char>& data) {
  const fs::path to = folder();
  if (to.empty()) return;
  std::error_code failed;
  fs::create_directories(to, failed);
  static std::atomic<int> written{0};
  const fs::path temporary = to / fmt::format("{}.{}.{}", key, ::getpid(), ++written);  // no other writer's
  Head head;
  head.bytes = data.size();
  head.sum = sum_of(data);
  std::ofstream file(temporary, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&head), sizeof head);
  file.write(data.data(), std::streamsize(data.size()));
  file.close();
  if (file) fs::rename(temporary, to / key, failed);
  if (!file || failed) fs::remove(temporary, failed);
}

}  // namespace pg::cuda
