#include "tensor/io/host_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tensor/error.h"
#include "tensor/memory_account.h"
#include "tensor/parallel.h"

namespace pg {

std::string read_host_file(HostFiles& files, const std::string& path) {
  const std::unique_ptr<HostFile> file = files.open(path, "rb");
  if (!file) throw Error(fmt::format("load: {}: no such file, or not allowed", path));
  return read_host_file(*file, path);
}

std::string read_host_file(HostFile& file, const std::string& path) {
  constexpr size_t kBlock = size_t(64) << 10;
  const MemoryAccount* account = MemoryAccount::current();
  std::string content;
  for (;;) {
    poll_kernel();
    const size_t old = content.size();
    if (account && int64_t(old) > account->limit() - account->used())
      throw OutOfMemory(fmt::format("load: {}: out of memory: the file is too large for the limit", path));
    content.resize(old + kBlock);
    const int64_t n = file.read(content.data() + old, kBlock);
    if (n < 0 || uint64_t(n) > kBlock) throw Error(fmt::format("load: {}: at byte {}: cannot read", path, old));
    content.resize(old + size_t(n));
    if (n == 0) return content;
  }
}

bool can_read(const std::string& path) {
  if (path.find('\0') != path.npos) return false;
  if (HostFiles* files = HostFiles::current()) return files->open(path, "rb") != nullptr;
  return ::access(path.c_str(), R_OK) == 0;
}

}  // namespace pg
