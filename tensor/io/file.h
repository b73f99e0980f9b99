// File access below the formats: sequential reading with positions, through gzip, and atomic writing.
#pragma once
#include <fmt/format.h>
#include <zlib.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/function_ref.h"
#include "tensor/io/host_files.h"
#include "tensor/value.h"

namespace pg {

// A file descriptor, closed by the destructor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int close();  // returns the result of ::close
  void reset(int fd) {
    close();
    fd_ = fd;
  }

 private:
  int fd_;
};

// A regular file, or its content in memory, read once from front to back. Where the thread uses files of a host, the
// host's file is read at once. Positions count bytes of the content; for a
// gzipped file that is the decompressed content.
class FileSource {
 public:
  enum class Gzip { kNever, kAllowed };
  explicit FileSource(const std::string& path, Gzip gzip = Gzip::kAllowed);
  // `name` is the path in messages. `content` outlives the source.
  FileSource(const std::string& name, std::string_view content);
  ~FileSource();
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& path() const { return path_; }
  uint64_t position() const { return position_; }
  bool compressed() const { return bool(stream_); }
  // An upper bound of the content's length in bytes: the size of a plain file, the allowed expansion of a gzipped one.
  uint64_t limit() const { return limit_; }

  // Reads exactly `bytes` bytes. Throws an error that the file ends within `what` when there are fewer.
  void read(void* to, size_t bytes, std::string_view what);
  // Reads up to `bytes` bytes and returns how many there were.
  size_t read_some(void* to, size_t bytes);

  // Call this before allocating memory for the last `bytes` bytes of the file. Throws when the file cannot hold them,
  // and for trailing bytes when the size is known.
  void check_payload(uint64_t bytes) const;
  // Throws for trailing bytes.
  void require_end();

  // Throws `load: FILE: at byte N: …`.
  template <class... Args>
  [[noreturn]] void fail_at(uint64_t at, fmt::format_string<Args...> text, Args&&... args) const {
    throw_at(at, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void throw_at(uint64_t at, const std::string& text) const;
  void open_file();
  void start_inflating();
  size_t read_raw(void* to, size_t bytes);
  size_t inflate_some(unsigned char* to, size_t bytes);
  bool refill();
  void next_member();

  std::string path_;
  FileDescriptor fd_;
  std::string host_content_;
  std::string_view content_;  // used without a descriptor
  uint64_t position_ = 0, limit_ = 0, raw_position_ = 0;
  std::unique_ptr<z_stream> stream_;  // of a gzipped file
  std::vector<unsigned char> packed_;
  bool ended_ = false;
};

// Throws OutOfMemory if the result of a call of zlib says so. inflate allocates its window late, when it needs one.
void require_zlib_memory(int result, const std::string& path);

// Returns the size in bytes of an array of `shape` with elements of `size` bytes. Throws at byte `at` on overflow.
uint64_t payload_bytes(const FileSource& file, uint64_t at, const Dims& shape, uint64_t size);

// Reverses the bytes of each of `count` elements of `size` bytes.
void swap_bytes(void* data, int64_t count, int size);

// Reads a contiguous CPU array. Throws for bytes of bool other than 0 and 1.
Value read_array(FileSource& file, DType dtype, const Dims& shape, std::string_view what);

// Integers of a file that no dtype has: 16 bits become int32, and unsigned ones of more bits int64.
struct StoredInteger {
  int size;
  bool is_signed, big_endian;
  DType widened() const { return size == 2 ? DType::kInt32 : DType::kInt64; }
};

// Reads a contiguous CPU array of the type `from.widened()`. Throws for a value that it cannot hold.
Value read_widened(FileSource& file, StoredInteger from, const Dims& shape, std::string_view what);

// The start of an npy file.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// Reads the rest of a file as an npy file.
Value read_npy(FileSource& file);

// Returns the whole content of a file, decompressed if it is gzipped.
std::string read_file(const std::string& path);

// Writes in pieces. While one piece goes to the disk the next one is prepared, with polls between them. One sync at the
// end could take seconds that cannot be interrupted.
class FileSink {
 public:
  FileSink(const std::string& path, int fd) : path_(path), fd_(fd) {}
  FileSink(const std::string& path, HostFile& file) : path_(path), host_(&file) {}
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void flush();

 private:
  void write_raw(const char* data, size_t bytes);
  void write_to_host(const char* data, size_t bytes);
  void end_piece();
  void sync_piece(uint64_t from, unsigned flags);

  const std::string& path_;
  int fd_ = -1;
  HostFile* host_ = nullptr;
  uint64_t written_ = 0, piece_ = 0;  // bytes; the start of the current piece
  std::string pending_;
};

// Writes `path` through a temporary file in the same folder, which is synced and then renamed: at any moment the path
// has either the old or the new content. If `path` is a symbolic link, its target is written. The mode bits of an
// existing file are kept. On an exception (also from `body` or a poll) the temporary file is removed. Where the thread
// uses files of a host, its file is committed at the end, or given up.
void write_file_atomic(const std::string& path, FunctionRef<void(FileSink&)> body);

// Returns the elements of a value in row-major order, on the CPU.
Value host_array(const Value& value);

// Returns the text for an errno, as in `cannot open: No such file or directory`.
std::string errno_text(int error);

}  // namespace pg
