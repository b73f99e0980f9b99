// write_file_atomic: the new content is complete and on the disk before it takes the name.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "graph/serialize_file.h"

namespace pg {
namespace {

[[noreturn]] void fail_save(const std::string& path, const char* what, int error) {
  throw Error(fmt::format("save: {}: {}: {}", path, what, errno_text(error)));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Where a write to `path` lands: links are followed by hand, since the last one may dangle.
std::string resolve_links(const std::string& path) {
  std::string at = path;
  for (int depth = 0; depth < 40; ++depth) {
    char target[PATH_MAX];
    const ssize_t n = ::readlink(at.c_str(), target, sizeof target);
    if (n < 0) return at;  // not a link, or not there
    const std::string next(target, size_t(n));
    at = next[0] == '/' ? next : folder_of(at) + "/" + next;
  }
  fail_save(path, "cannot open", ELOOP);
}

// A fresh file in `folder` that goes away unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& folder, const std::string& path) {
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 100; ++attempt) {
      name_ = fmt::format("{}/.perigee-{}-{}.tmp", folder, ::getpid(), counter++);
      fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
      if (fd_ >= 0) return;
      if (errno != EEXIST && errno != EINTR) break;
    }
    fail_save(path, "cannot create a file in its folder", errno);
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!kept_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_; }
  void commit(const std::string& target, const std::string& path) {
    while (::fsync(fd_) != 0)
      if (errno != EINTR) fail_save(path, "cannot write", errno);
    if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_save(path, "cannot write", errno);
    if (::rename(name_.c_str(), target.c_str()) != 0) fail_save(path, "cannot replace", errno);
    kept_ = true;
  }

 private:
  std::string name_;
  int fd_ = -1;
  bool kept_ = false;
};

// What stands at the target decides about permission, owner and mode, as a write to it would.
void take_after(const std::string& target, const std::string& path, int fd) {
  struct stat info;
  if (::stat(target.c_str(), &info) != 0) {
    if (errno != ENOENT) fail_save(path, "cannot open", errno);
    return;
  }
  if (S_ISDIR(info.st_mode)) fail_save(path, "cannot open", EISDIR);
  if (!S_ISREG(info.st_mode)) throw Error(fmt::format("save: {}: not a regular file", path));
  if (::access(target.c_str(), W_OK) != 0) fail_save(path, "cannot open", errno);
  if (::fchown(fd, info.st_uid, info.st_gid) != 0 && errno != EPERM && errno != EINVAL)
    fail_save(path, "cannot keep the owner", errno);
  if (::fchmod(fd, info.st_mode & 07777) != 0) fail_save(path, "cannot keep the mode bits", errno);
}

// Makes the rename itself durable. File systems that cannot sync a folder are left alone.
void sync_folder(const std::string& folder) {
  FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

}  // namespace

void write_file_atomic(const std::string& path, FunctionRef<void(FileSink&)> body) {
  if (path.empty()) fail_save("''", "cannot open", ENOENT);
  if (path.find('\0') != path.npos) throw Error(fmt::format("save: {}: a path with a zero byte", path.c_str()));
  const std::string target = resolve_links(path), folder = folder_of(target);
  if (target.back() == '/') fail_save(path, "cannot open", EISDIR);
  TemporaryFile file(folder, path);
  take_after(target, path, file.fd());
  FileSink sink(path, file.fd());
  body(sink);
  sink.flush();
  file.commit(target, path);
  sync_folder(folder);
}

}  // namespace pg
