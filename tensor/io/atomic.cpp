// write_file_atomic: the new content is complete and synced to the disk before it gets its name.
//
// A process that is killed leaves its temporary file behind. These files are named after their target and locked
// (flock) while their process lives. The next write to the same target removes those that are not locked.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "tensor/io/file.h"

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

// Returns the path that a write to `path` goes to. Follows links itself, because the last one may dangle.
std::string resolve_links(const std::string& path) {
  std::string at = path;
  for (int depth = 0; depth < 40; ++depth) {
    char target[PATH_MAX];
    const ssize_t n = ::readlink(at.c_str(), target, sizeof target);
    if (n < 0) return at;  // not a link, or it does not exist
    const std::string next(target, size_t(n));
    at = next[0] == '/' ? next : folder_of(at) + "/" + next;
  }
  fail_save(path, "cannot open", ELOOP);
}

// Returns the start of the names of a target's temporary files; ".<pid>.<number>.tmp" follows.
std::string temporary_stem(const std::string& target) {
  constexpr size_t kLongest = 200;  // bytes of the target's name, so that the whole fits into 255
  std::string name = target.substr(target.rfind('/') + 1);
  if (name.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (name[end] & 0xc0) == 0x80) --end;  // do not cut a UTF-8 character
    name.resize(end);
  }
  return "." + name;
}

bool is_temporary(std::string_view name, std::string_view stem) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with(stem) || !name.ends_with(kEnd) || name.size() <= stem.size() + kEnd.size()) return false;
  const std::string_view numbers = name.substr(stem.size(), name.size() - stem.size() - kEnd.size());
  return numbers[0] == '.' && numbers.find_first_not_of(".0123456789") == numbers.npos;
}

// Tries to lock the file. Returns false on a file system without locks, where no file is ever treated as stale.
bool lock_now(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

bool is_linked(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 0;
}

// Ignores failures: a file that cannot be removed stays.
void remove_stale(const std::string& folder, const std::string& stem) {
  DIR* entries = ::opendir(folder.c_str());
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (!is_temporary(entry->d_name, stem)) continue;
    const FileDescriptor fd(::openat(::dirfd(entries), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd.get() >= 0 && is_linked(fd.get()) && lock_now(fd.get())) ::unlinkat(::dirfd(entries), entry->d_name, 0);
  }
  ::closedir(entries);
}

// A new, locked file in the folder of `target`. It is removed unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& target, const std::string& path) {
    static std::atomic<unsigned> counter{0};
    const std::string folder = folder_of(target), stem = temporary_stem(target);
    remove_stale(folder, stem);
    for (int attempt = 0; attempt < 100; ++attempt) {
      name_ = fmt::format("{}/{}.{}.{}.tmp", folder, stem, ::getpid(), counter++);
      fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
      if (fd_ >= 0) {
        while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {}
        if (is_linked(fd_)) return;  // otherwise another process removed it before it was locked
        ::close(std::exchange(fd_, -1));
      } else if (errno != EEXIST && errno != EINTR) {
        break;
      }
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
    if (::rename(name_.c_str(), target.c_str()) != 0) fail_save(path, "cannot replace", errno);
    kept_ = true;  // the descriptor is closed, which unlocks it, only after the rename
  }

 private:
  std::string name_;
  int fd_ = -1;
  bool kept_ = false;
};

// Copies owner and mode from an existing target, and throws when the target cannot be written.
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

// Makes the rename itself durable. Ignores file systems that cannot sync a folder.
void sync_folder(const std::string& folder) {
  FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

void write_host_file(HostFiles& files, const std::string& path, FunctionRef<void(FileSink&)> body) {
  const std::unique_ptr<HostFile> file = files.open(path, "wb");
  if (!file) throw Error(fmt::format("save: {}: not allowed", path));
  FileSink sink(path, *file);
  body(sink);
  sink.flush();
  if (!file->commit()) throw Error(fmt::format("save: {}: the host could not keep the file", path));
}

}  // namespace

void write_file_atomic(const std::string& path, FunctionRef<void(FileSink&)> body) {
  if (path.empty()) fail_save("''", "cannot open", ENOENT);
  if (path.find('\0') != path.npos) throw Error(fmt::format("save: {}: a path with a zero byte", path.c_str()));
  if (HostFiles* files = HostFiles::current()) return write_host_file(*files, path, body);
  const std::string target = resolve_links(path), folder = folder_of(target);
  if (target.back() == '/') fail_save(path, "cannot open", EISDIR);
  TemporaryFile file(target, path);
  take_after(target, path, file.fd());
  FileSink sink(path, file.fd());
  body(sink);
  sink.flush();
  file.commit(target, path);
  sync_folder(folder);
}

}  // namespace pg
