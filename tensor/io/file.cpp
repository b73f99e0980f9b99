#include "tensor/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "tensor/context.h"

namespace pg {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian and read in place");

namespace {

constexpr size_t kPackedChunk = size_t(64) << 10;
constexpr size_t kPiece = size_t(8) << 20;  // bytes of a file between two polls
// The allowed expansion of a gzipped file: this factor, or this many bytes. The maximum of deflate is a factor of 1032.
constexpr uint64_t kMaxExpansion = 256, kAlwaysAllowed = uint64_t(64) << 20;
constexpr unsigned char kGzipMagic[3] = {0x1f, 0x8b, 8};

}  // namespace

std::string errno_text(int error) { return std::error_code(error, std::generic_category()).message(); }

FileDescriptor::~FileDescriptor() { close(); }

int FileDescriptor::close() {
  if (fd_ < 0) return 0;
  return ::close(std::exchange(fd_, -1));
}

FileSource::FileSource(const std::string& path, Gzip gzip) : path_(path) {
  if (path.empty()) throw Error("load: '': a path is empty (expected the name of a file)");
  if (path.find('\0') != path.npos) throw Error(fmt::format("load: {}: a path with a zero byte", path.c_str()));
  unsigned char magic[3] = {};
  if (HostFiles* files = HostFiles::current()) {
    content_ = host_content_ = read_host_file(*files, path);
    limit_ = content_.size();
    content_.copy(reinterpret_cast<char*>(magic), 3);
  } else {
    open_file();
    if (::pread(fd_.get(), magic, 3, 0) != 3) return;
  }
  if (gzip == Gzip::kAllowed && std::equal(magic, magic + 3, kGzipMagic)) start_inflating();
}

// O_NONBLOCK: opening a FIFO must not wait for a writer. FIFOs are refused below.
void FileSource::open_file() {
  fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd_.get() < 0) throw Error(fmt::format("load: {}: {}", path_, errno_text(errno)));
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0) throw Error(fmt::format("load: {}: {}", path_, errno_text(errno)));
  if (!S_ISREG(info.st_mode)) throw Error(fmt::format("load: {}: not a regular file", path_));
  limit_ = uint64_t(info.st_size);
}

void require_zlib_memory(int result, const std::string& path) {
  if (result == Z_MEM_ERROR) throw OutOfMemory(fmt::format("load: {}: out of memory", path));
}

void FileSource::start_inflating() {
  limit_ = std::max(kAlwaysAllowed, limit_ * kMaxExpansion);
  packed_.resize(kPackedChunk);
  auto stream = std::make_unique<z_stream>();
  require_zlib_memory(inflateInit2(stream.get(), 15 + 16), path_);
  stream_ = std::move(stream);
}

FileSource::FileSource(const std::string& name, std::string_view content)
    : path_(name), content_(content), limit_(content.size()) {}

FileSource::~FileSource() {
  if (stream_) inflateEnd(stream_.get());
}

void FileSource::throw_at(uint64_t at, const std::string& text) const {
  throw Error(fmt::format("load: {}: at byte {}: {}", path_, at, text));
}

size_t FileSource::read_raw(void* to, size_t bytes) {
  if (fd_.get() < 0) {
    const size_t n = content_.copy(static_cast<char*>(to), bytes, raw_position_);
    raw_position_ += n;
    return n;
  }
  size_t done = 0;
  while (done < bytes) {
    if (done > 0) poll_kernel();
    const ssize_t n = ::read(fd_.get(), static_cast<char*>(to) + done, std::min<size_t>(bytes - done, kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_at(raw_position_, "cannot read: " + errno_text(errno));
    if (n == 0) break;
    done += size_t(n);
    raw_position_ += uint64_t(n);
  }
  return done;
}

bool FileSource::refill() {
  stream_->next_in = packed_.data();
  stream_->avail_in = uInt(read_raw(packed_.data(), packed_.size()));
  return stream_->avail_in > 0;
}

// Called after the end of a gzip member. Only another member may follow.
void FileSource::next_member() {
  if (stream_->avail_in == 0 && !refill()) {
    ended_ = true;
    return;
  }
  if (*stream_->next_in != kGzipMagic[0])
    throw_at(position_, fmt::format("{} trailing bytes or more after the gzip stream", stream_->avail_in));
  inflateReset(stream_.get());
}

size_t FileSource::inflate_some(unsigned char* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes && !ended_) {
    poll_kernel();
    if (stream_->avail_in == 0 && !refill()) throw_at(position_ + done, "the gzip stream is truncated");
    const size_t room = std::min<size_t>(bytes - done, 1 << 30);
    stream_->next_out = to + done;
    stream_->avail_out = uInt(room);
    const int result = inflate(stream_.get(), Z_NO_FLUSH);
    done += room - stream_->avail_out;
    require_zlib_memory(result, path_);
    if (result == Z_STREAM_END)
      next_member();
    else if (result != Z_OK && result != Z_BUF_ERROR)
      throw_at(position_ + done,
               fmt::format("the gzip stream is damaged ({})", stream_->msg ? stream_->msg : "inflate"));
  }
  return done;
}

size_t FileSource::read_some(void* to, size_t bytes) {
  const size_t n = compressed() ? inflate_some(static_cast<unsigned char*>(to), bytes) : read_raw(to, bytes);
  position_ += n;
  if (position_ > limit_) throw_at(limit_, fmt::format("the content is longer than {} bytes", limit_));
  return n;
}

void FileSource::read(void* to, size_t bytes, std::string_view what) {
  const uint64_t start = position_;
  if (read_some(to, bytes) == bytes) return;
  throw_at(position_, fmt::format("the file ends within {} (of {} bytes, from byte {} on)", what, bytes, start));
}

void FileSource::check_payload(uint64_t bytes) const {
  const uint64_t room = limit_ - position_;  // not negative: read_some keeps position_ <= limit_
  if (bytes > room)
    throw_at(position_, fmt::format("the file is too short: its header describes {} bytes of data, it has {}{}", bytes,
                                    compressed() ? "at most " : "", room));
  if (!compressed() && bytes < room) throw_at(position_ + bytes, fmt::format("{} trailing bytes", room - bytes));
}

void FileSource::require_end() {
  char extra;
  const uint64_t end = position_;
  if (read_some(&extra, 1) != 0) throw_at(end, "trailing bytes");
}

uint64_t payload_bytes(const FileSource& file, uint64_t at, const Dims& shape, uint64_t size) {
  try {
    return Bytes::of(numel(shape), size).count();
  } catch (const Error&) {
    file.fail_at(at, "shape {} has too many elements", to_string(shape));
  }
}

void swap_bytes(void* data, int64_t count, int size) {
  if (size == 1) return;
  auto* at = static_cast<unsigned char*>(data);
  for (int64_t i = 0; i < count; ++i, at += size) std::reverse(at, at + size);
}

Value read_array(FileSource& file, DType dtype, const Dims& shape, std::string_view what) {
  const uint64_t start = file.position(), bytes = payload_bytes(file, start, shape, uint64_t(size_of(dtype)));
  Value value = make_array(Type{dtype, {}, shape});
  auto* data = static_cast<unsigned char*>(value.array().data());
  file.read(data, bytes, what);
  if (dtype == DType::kBool) {
    const auto* bad = std::find_if(data, data + bytes, [](unsigned char b) { return b > 1; });
    if (bad != data + bytes) file.fail_at(start + uint64_t(bad - data), "{} has a bool of value {}", what, *bad);
  }
  return value;
}

namespace {

template <class From, class To>
void widen(const char* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * int64_t(sizeof value), sizeof value);
    to[i] = To(value);
  }
}

}  // namespace

Value read_widened(FileSource& file, StoredInteger from, const Dims& shape, std::string_view what) {
  Value value = make_array(Type{from.widened(), {}, shape});
  auto* narrow = static_cast<int32_t*>(value.array().data());
  auto* wide = static_cast<int64_t*>(value.array().data());
  std::vector<char> raw(kPackedChunk);
  const int64_t step = int64_t(kPackedChunk) / from.size;
  for (int64_t i = 0, n = value.numel(); i < n; i += step) {
    poll_kernel();
    const int64_t count = std::min(step, n - i);
    const uint64_t start = file.position();
    file.read(raw.data(), size_t(count * from.size), what);
    if (from.big_endian) swap_bytes(raw.data(), count, from.size);
    if (from.size == 2)
      from.is_signed ? widen<int16_t>(raw.data(), count, narrow + i) : widen<uint16_t>(raw.data(), count, narrow + i);
    else if (from.size == 4)
      widen<uint32_t>(raw.data(), count, wide + i);
    else
      widen<uint64_t>(raw.data(), count, wide + i);
    const int64_t* bad =
        from.size == 8 ? std::find_if(wide + i, wide + i + count, [](int64_t v) { return v < 0; }) : wide + i + count;
    if (bad != wide + i + count)
      file.fail_at(start + uint64_t(bad - wide - i) * 8, "{}: element {} is {}, which int64 cannot hold", what,
                   bad - wide + 1, uint64_t(*bad));
  }
  return value;
}

std::string read_file(const std::string& path) {
  FileSource file(path);
  std::string text;
  size_t step = file.compressed() ? kPackedChunk : size_t(file.limit()) + 1;
  for (size_t n = step; n == step;) {
    const size_t old = text.size();
    if (file.compressed()) step = std::max(step, old);
    text.resize(old + step);
    n = file.read_some(text.data() + old, step);
    text.resize(old + n);
  }
  return text;
}

void FileSink::write_to_host(const char* data, size_t bytes) {
  while (bytes > 0) {
    poll_kernel();
    const int64_t n = host_->write(data, bytes);
    if (n <= 0 || uint64_t(n) > bytes) throw Error(fmt::format("save: {}: cannot write", path_));
    data += n;
    bytes -= size_t(n);
  }
}

void FileSink::write_raw(const char* data, size_t bytes) {
  if (host_) return write_to_host(data, bytes);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, data, std::min<size_t>(bytes, piece_ + kPiece - written_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Error(fmt::format("save: {}: cannot write: {}", path_, errno_text(n < 0 ? errno : ENOSPC)));
    data += n;
    bytes -= size_t(n);
    written_ += uint64_t(n);
    if (written_ - piece_ == kPiece) end_piece();
  }
}

// Starts writing the current piece to the disk and waits for the previous one.
void FileSink::end_piece() {
  poll_kernel();
  sync_piece(piece_, SYNC_FILE_RANGE_WRITE);
  if (piece_ > 0) sync_piece(piece_ - kPiece, SYNC_FILE_RANGE_WAIT_BEFORE);
  piece_ = written_;
  poll_kernel();
}

// File systems that do not support this write everything in the sync at the end.
void FileSink::sync_piece(uint64_t from, unsigned flags) {
  if (::sync_file_range(fd_, off64_t(from), off64_t(kPiece), flags) == 0) return;
  if (errno == EIO || errno == ENOSPC || errno == EDQUOT)  // reported only once by the system
    throw Error(fmt::format("save: {}: cannot write: {}", path_, errno_text(errno)));
}

void FileSink::write(const void* data, size_t bytes) {
  if (pending_.size() + bytes > kPackedChunk) flush();
  if (bytes > kPackedChunk)
    write_raw(static_cast<const char*>(data), bytes);
  else
    pending_.append(static_cast<const char*>(data), bytes);
}

void FileSink::flush() {
  write_raw(pending_.data(), pending_.size());
  pending_.clear();
}

Value host_array(const Value& value) {
  if (value.is_number()) return make_scalar(value.number(), DType::kFloat32);
  Context ctx;
  return to_contiguous(ctx, to_device(ctx, value.detached(), Device{}));
}

}  // namespace pg
