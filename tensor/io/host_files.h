// Files that a host provides in place of those of the system.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pg {

// An open file. The destructor gives it up unless it was committed.
class HostFile {
 public:
  virtual ~HostFile() = default;
  // Returns the number of bytes, 0 at the end, or less on failure.
  virtual int64_t read(void* data, size_t size) = 0;
  virtual int64_t write(const void* data, size_t size) = 0;
  // Ends writing: the content is whole. Returns whether it was kept.
  virtual bool commit() = 0;
};

class HostFiles {
 public:
  virtual ~HostFiles() = default;
  // mode: "rb" or "wb". Returns null if there is no such file or it is not allowed.
  virtual std::unique_ptr<HostFile> open(const std::string& path, const char* mode) = 0;

  // The files that this thread uses, or null: those of the system.
  static HostFiles* current() { return current_; }

 private:
  friend class ScopedFiles;
  static inline thread_local HostFiles* current_ = nullptr;
};

// Makes files current on this thread. The caller keeps them alive.
class ScopedFiles {
 public:
  explicit ScopedFiles(HostFiles* files) : outer_(HostFiles::current_) { HostFiles::current_ = files; }
  ~ScopedFiles() { HostFiles::current_ = outer_; }
  ScopedFiles(const ScopedFiles&) = delete;
  ScopedFiles& operator=(const ScopedFiles&) = delete;

 private:
  HostFiles* outer_;
};

// The content of a file of the host, or of one that has been opened. Throws Error, `load: PATH: …`, or OutOfMemory if
// it does not fit into the memory account of this thread.
std::string read_host_file(HostFiles& files, const std::string& path);
std::string read_host_file(HostFile& file, const std::string& path);

// Whether a file can be opened for reading.
bool can_read(const std::string& path);

}  // namespace pg
