// Files below the formats: sequential reading with positions (gzip is seen through) and atomic writing.
#pragma once
#include <fmt/format.h>
#include <zlib.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/function_ref.h"
#include "tensor/value.h"

namespace pg {

// A closed-on-destruction file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int close();  // the result of ::close

 private:
  int fd_;
};

// A regular file, read once from front to back. Positions count bytes of the content, which for a gzipped
// file are those after decompression.
class FileSource {
 public:
  enum class Gzip { kNever, kAllowed };
  explicit FileSource(const std::string& path, Gzip gzip = Gzip::kAllowed);
  ~FileSource();
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& path() const { return path_; }
  uint64_t position() const { return position_; }
  bool compressed() const { return bool(stream_); }
  // The content is at most this long: the size of a plain file, a cap on the expansion of a gzipped one.
  uint64_t limit() const { return limit_; }

  // Exactly `bytes` bytes, or an error that says that the file ends within `what`.
  void read(void* to, size_t bytes, std::string_view what);
  // As many as there are, up to `bytes`.
  size_t read_some(void* to, size_t bytes);

  // To be called before anything is allocated for the `bytes` bytes that follow and end the file: refuses what the
  // file cannot hold, and trailing bytes where the size is known.
  void check_payload(uint64_t bytes) const;
  // Refuses trailing bytes.
  void require_end();

  // `load: FILE: at byte N: …`
  template <class... Args>
  [[noreturn]] void fail_at(uint64_t at, fmt::format_string<Args...> text, Args&&... args) const {
    throw_at(at, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void throw_at(uint64_t at, const std::string& text) const;
  size_t read_raw(void* to, size_t bytes);
  size_t inflate_some(unsigned char* to, size_t bytes);
  bool refill();
  void next_member();

  std::string path_;
  FileDescriptor fd_;
  uint64_t position_ = 0, limit_ = 0, raw_position_ = 0;
  std::unique_ptr<z_stream> stream_;  // of a gzipped file
  std::vector<unsigned char> packed_;
  bool ended_ = false;
};

// The bytes that an array of `shape` and elements of `size` bytes takes, in checked arithmetic.
uint64_t payload_bytes(const FileSource& file, uint64_t at, const Dims& shape, uint64_t size);

// Turns `count` elements of `size` bytes between big- and little-endian.
void swap_bytes(void* data, int64_t count, int size);

// A contiguous CPU array, read from the file. Bytes of bool other than 0 and 1 are refused.
Value read_array(FileSource& file, DType dtype, const Dims& shape, std::string_view what);

// The whole content of a file, unpacked when it is gzipped.
std::string read_file(const std::string& path);

// What is written goes to the disk in pieces, each on its way while the next one is made, with polls between them: a
// sync of all of it at the end could take seconds that nothing interrupts.
class FileSink {
 public:
  FileSink(const std::string& path, int fd) : path_(path), fd_(fd) {}
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void flush();

 private:
  void write_raw(const char* data, size_t bytes);
  void end_piece();
  void sync_piece(uint64_t from, unsigned flags);

  const std::string& path_;
  int fd_;
  uint64_t written_ = 0, piece_ = 0;  // bytes; where the piece that is being written begins
  std::string pending_;
};

// Writes `path` through a temporary file in the same folder that is synced and then renamed, so that at any
// moment the old or the new content stands there. A symbolic link stays and its target is written; the mode bits
// of an existing file stay. On an exception (from `body` too, and from the polls) the temporary file is removed.
void write_file_atomic(const std::string& path, FunctionRef<void(FileSink&)> body);

// The elements of a value in row-major order, on the CPU.
Value host_array(const Value& value);

// `cannot open: No such file or directory`, from errno.
std::string errno_text(int error);

}  // namespace pg
