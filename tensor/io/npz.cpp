// npz: a zip archive of npy files. The directory at the end of the archive says where each member is. It is trusted in
// nothing: places and sizes are checked against the file, contents against their checksum.
#include <cstring>
#include <set>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg {
namespace {

constexpr std::string_view kMemberMagic{"PK\3\4", 4}, kEntryMagic{"PK\1\2", 4}, kEndMagic{"PK\5\6", 4},
    kEnd64Magic{"PK\6\6", 4}, kLocator64Magic{"PK\6\7", 4};
constexpr std::string_view kSuffix = ".npy";
constexpr uint64_t kMemberSize = 30, kEntrySize = 46, kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20;
constexpr uint64_t kMaxComment = 0xffff, kIn64 = 0xffffffff;  // kIn64: the number is in a zip64 field
constexpr uint64_t kMaxDeflate = 1032;                        // the largest expansion of a deflated stream
constexpr size_t kPiece = size_t(1) << 20;                    // bytes between two polls

struct Member {
  std::string name;
  uint64_t flags, method, crc, packed, size, at;
};

class Archive {
 public:
  explicit Archive(const std::string& path) : file_(path, FileSource::Gzip::kNever) {
    const Dims bytes{int64_t(file_.limit())};
    content_ = read_array(file_, DType::kUInt8, bytes, "the archive");
    text_ = {static_cast<const char*>(content_.array().data()), size_t(file_.limit())};
    file_.require_end();
  }

  std::vector<Member> members() {
    find_directory();
    std::vector<Member> out;
    uint64_t at = directory_;
    for (uint64_t i = 0; i < count_; ++i) out.push_back(read_entry(at));
    return out;
  }

  // Returns the array of a member, and no value for a directory or another file.
  Value array(const Member& member) {
    if (member.name.ends_with('/')) return {};
    if (member.flags & 1) file_.fail_at(member.at, "'{}' is encrypted", member.name);
    const uint64_t start = content_of(member);
    const std::string_view packed = text_.substr(start, member.packed);
    if (member.method == 8) return read(member, inflated(member, start, packed));
    if (member.method != 0)
      file_.fail_at(member.at, "'{}' has the compression method {} (expected 0, stored, or 8, deflated)", member.name,
                    member.method);
    if (member.size != member.packed) file_.fail_at(member.at, "'{}' is stored with two sizes", member.name);
    return read(member, packed);
  }

 private:
  uint64_t number(uint64_t at, int bytes) const {
    uint64_t value = 0;
    if (at > text_.size() || text_.size() - at < uint64_t(bytes)) file_.fail_at(text_.size(), "the archive is cut off");
    std::memcpy(&value, text_.data() + at, size_t(bytes));
    return value;
  }
  bool is_at(uint64_t at, std::string_view magic) const {
    return at <= text_.size() && text_.substr(at).starts_with(magic);
  }
  void expect(uint64_t at, std::string_view magic, const char* what) const {
    if (!is_at(at, magic)) file_.fail_at(std::min<uint64_t>(at, text_.size()), "{} of the zip archive expected", what);
  }

  // Sets directory_, its end and the number of its entries.
  void find_directory() {
    if (!is_at(0, kMemberMagic) && !is_at(0, kEndMagic)) file_.fail_at(0, "not an npz file (a zip archive)");
    const uint64_t size = text_.size(), first = size > kEndSize + kMaxComment ? size - kEndSize - kMaxComment : 0;
    uint64_t end = size;
    for (uint64_t at = size; end == size && at-- > first;)
      if (is_at(at, kEndMagic) && size - at >= kEndSize && at + kEndSize + number(at + 20, 2) == size) end = at;
    if (end == size) file_.fail_at(size, "the zip archive has no directory at its end: it is cut off or damaged");
    count_ = number(end + 10, 2), directory_ = number(end + 16, 4);
    if (end >= kLocator64Size && is_at(end - kLocator64Size, kLocator64Magic)) {
      end = number(end - kLocator64Size + 8, 8);
      expect(end, kEnd64Magic, "the zip64 end");
      number(end + kEnd64Size - 1, 1);
      count_ = number(end + 32, 8), directory_ = number(end + 48, 8);
    }
    directory_end_ = end;
    if (directory_ > end || count_ > (end - directory_) / kEntrySize)
      file_.fail_at(end, "the directory of the zip archive does not fit into the file");
  }

  // Reads an entry of the directory and moves `at` to the next one.
  Member read_entry(uint64_t& at) const {
    expect(at, kEntryMagic, "an entry of the directory");
    number(at + kEntrySize - 1, 1);
    const uint64_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
    const uint64_t next = at + kEntrySize + name + extra + comment;
    if (next > directory_end_) file_.fail_at(at, "an entry of the directory goes beyond its end");
    Member member{std::string(text_.substr(at + kEntrySize, name)),
                  number(at + 8, 2),
                  number(at + 10, 2),
                  number(at + 16, 4),
                  number(at + 20, 4),
                  number(at + 24, 4),
                  number(at + 42, 4)};
    read_zip64(at + kEntrySize + name, extra, member);
    at = next;
    return member;
  }

  // The zip64 field holds those of the three numbers that do not fit into 32 bits.
  void read_zip64(uint64_t at, uint64_t size, Member& member) const {
    for (const uint64_t end = at + size; at + 4 <= end; at += 4 + number(at + 2, 2)) {
      if (number(at, 2) != 1) continue;
      uint64_t field = at + 4;
      for (uint64_t* value : {&member.size, &member.packed, &member.at})
        if (*value == kIn64) *value = number(field, 8), field += 8;
      return;
    }
  }

  // Returns where the content of a member starts, which lies before the directory as a whole.
  uint64_t content_of(const Member& member) const {
    expect(member.at, kMemberMagic, "a member");
    const uint64_t start = member.at + kMemberSize + number(member.at + 26, 2) + number(member.at + 28, 2);
    if (start > directory_ || member.packed > directory_ - start)
      file_.fail_at(member.at, "'{}' goes beyond the content of the archive", member.name);
    return start;
  }

  std::string_view inflated(const Member& member, uint64_t start, std::string_view packed) {
    if (member.size / kMaxDeflate > packed.size() + 1)
      file_.fail_at(member.at, "'{}' cannot have {} bytes: {} are stored", member.name, member.size, packed.size());
    inflated_ = make_array(Type{DType::kUInt8, {}, {int64_t(member.size)}});
    auto* out = static_cast<unsigned char*>(inflated_.array().data());
    z_stream stream{};
    require_zlib_memory(inflateInit2(&stream, -15), file_.path());
    const std::unique_ptr<z_stream, decltype(&inflateEnd)> ended(&stream, inflateEnd);
    uint64_t done = 0, used = 0;
    for (int result = Z_OK; result != Z_STREAM_END;) {
      poll_kernel();
      const uInt in = uInt(std::min(kPiece, packed.size() - used)),
                 room = uInt(std::min<uint64_t>(kPiece, member.size - done));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + used)), stream.avail_in = in;
      stream.next_out = out + done, stream.avail_out = room;
      result = inflate(&stream, Z_NO_FLUSH);
      used += in - stream.avail_in, done += room - stream.avail_out;
      require_zlib_memory(result, file_.path());
      const bool stuck = in == stream.avail_in && room == stream.avail_out;
      if (result != Z_STREAM_END && (stuck || (result != Z_OK && result != Z_BUF_ERROR)))
        file_.fail_at(start + used, "'{}': the deflated content is damaged ({})", member.name,
                      stream.msg ? stream.msg : "its size is wrong");
    }
    if (done != member.size || used != packed.size())
      file_.fail_at(start + used, "'{}': the deflated content has another size than the directory says", member.name);
    return {reinterpret_cast<const char*>(out), size_t(done)};
  }

  Value read(const Member& member, std::string_view content) {
    uint64_t crc = crc32(0, nullptr, 0);
    for (size_t at = 0; at < content.size(); at += kPiece) {
      poll_kernel();
      const std::string_view piece = content.substr(at, kPiece);
      crc = crc32(uLong(crc), reinterpret_cast<const Bytef*>(piece.data()), uInt(piece.size()));
    }
    if (crc != member.crc) file_.fail_at(member.at, "the checksum of '{}' is wrong: the file is damaged", member.name);
    if (!member.name.ends_with(kSuffix) && !content.starts_with(kNpyMagic)) return {};
    FileSource source(fmt::format("{}: {}", file_.path(), member.name), content);
    return read_npy(source);
  }

  FileSource file_;
  Value content_, inflated_;
  std::string_view text_;
  uint64_t directory_ = 0, directory_end_ = 0, count_ = 0;
};

}  // namespace

NamedTensors load_npz(const std::string& path) {
  Archive archive(path);
  NamedTensors out;
  std::set<std::string> names;
  const std::vector<Member> members = archive.members();
  for (const Member& member : members) {
    Value array = archive.array(member);
    if (!array.defined()) continue;
    std::string name = member.name;
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    if (!names.insert(name).second) throw Error(fmt::format("load: {}: two arrays have the name '{}'", path, name));
    out.tensors.emplace_back(std::move(name), std::move(array));
  }
  if (out.tensors.empty() && !members.empty())
    throw Error(fmt::format("load: {}: none of the {} files in the archive is an npy array (the first is '{}')", path,
                            members.size(), members[0].name));
  return out;
}

}  // namespace pg
