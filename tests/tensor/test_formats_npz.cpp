// Archives of npy files, and npy files of integers that no dtype has.
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + ",)}\n";
  return std::string("\x93NUMPY\1\0", 8) + bytes_of({uint16_t(header.size())}) + header + data;
}

std::string deflated(const std::string& bytes) {
  const std::string packed = gzip(bytes);
  return packed.substr(10, packed.size() - 18);  // without gzip's header and end
}

struct Member {
  std::string name, content;
  uint16_t method = 0, flags = 0;
  uint32_t crc_error = 0;
};

std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const Member& m : members) {
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(m.content.data()), uInt(m.content.size()));
    const std::string packed = m.method == 8 ? deflated(m.content) : m.content;
    const std::string common =
        bytes_of<uint16_t>({20, m.flags, m.method, 0, 0}) +
        bytes_of<uint32_t>({uint32_t(crc) + m.crc_error, uint32_t(packed.size()), uint32_t(m.content.size())}) +
        bytes_of<uint16_t>({uint16_t(m.name.size()), 0});
    directory += "PK\1\2" + bytes_of<uint16_t>({20}) + common + bytes_of<uint16_t>({0, 0, 0}) +
                 bytes_of<uint32_t>({0, uint32_t(out.size())}) + m.name;
    out += "PK\3\4" + common + m.name + packed;
  }
  const auto count = uint16_t(members.size());
  return out + directory + "PK\5\6" + bytes_of<uint16_t>({0, 0, count, count}) +
         bytes_of<uint32_t>({uint32_t(directory.size()), uint32_t(out.size())}) + bytes_of<uint16_t>({0});
}

const std::string kArray = npy("<i4", "2", bytes_of<int32_t>({7, -8}));

Value loaded(const std::string& bytes) {
  static Folder folder;
  put(folder / "t.npy", bytes);
  return load_npy(folder / "t.npy");
}

NamedTensors archive(const std::string& bytes) {
  static Folder folder;
  put(folder / "t.npz", bytes);
  return load_npz(folder / "t.npz");
}

std::string refused(const std::string& bytes) {
  const std::string text = error_of([&] { archive(bytes); });
  CHECK_MESSAGE(contains(text, "t.npz: "), bytes.size(), " bytes: ", text);
  return text;
}

}  // namespace

TEST_CASE("npz: stored and deflated arrays load by name, and a comment may follow") {
  for (const uint16_t method : {0, 8}) {
    std::string bytes = zip({{"a.npy", kArray, method}, {"b", npy("|u1", "3", "xyz"), method}});
    bytes[bytes.size() - 2] = 4;
    const NamedTensors arrays = archive(bytes + "note");
    REQUIRE(arrays.tensors.size() == 2);
    CHECK(arrays.tensors[0].first == "a");
    CHECK(payload(arrays.tensors[0].second) == bytes_of<int32_t>({7, -8}));
    CHECK(arrays.tensors[1].first == "b");
    CHECK(payload(arrays.tensors[1].second) == "xyz");
  }
  CHECK(archive(zip({})).tensors.empty());
  const NamedTensors nested = archive(zip({{"layer/", ""}, {"layer/a.npy", kArray}}));
  REQUIRE(nested.tensors.size() == 1);
  CHECK(nested.tensors[0].first == "layer/a");
}

TEST_CASE("npz: directories and files that are not arrays are left out") {
  const NamedTensors arrays = archive(zip({{"a/", ""}, {"a/x.npy", kArray}, {"note.txt", "text"}, {"raw", kArray, 8}}));
  REQUIRE(arrays.tensors.size() == 2);
  CHECK(arrays.tensors[0].first == "a/x");
  CHECK(arrays.tensors[1].first == "raw");
}

TEST_CASE("npz: a file cut at any byte, or with any bit changed, is an error or the same arrays") {
  for (const uint16_t method : {0, 8}) {
    const std::string whole = zip({{"a.npy", kArray, method}});
    for (size_t n = 0; n < whole.size(); ++n) refused(whole.substr(0, n));
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string changed = whole;
      changed[bit / 8] = char(changed[bit / 8] ^ 1 << bit % 8);
      NamedTensors arrays;
      const std::string error = error_of([&] { arrays = archive(changed); });
      CHECK((contains(error, "t.npz: ") || arrays.tensors.empty() ||
             payload(arrays.tensors[0].second) == bytes_of<int32_t>({7, -8})));
    }
  }
}

TEST_CASE("npz: what cannot be read is refused by name") {
  CHECK(contains(refused(kArray), "at byte 0: not an npz file"));
  CHECK(contains(refused(zip({{"a.npy", kArray, 12}})), "'a.npy' has the compression method 12"));
  CHECK(contains(refused(zip({{"a.npy", kArray, 0, 1}})), "'a.npy' is encrypted"));
  CHECK(contains(refused(zip({{"a.npy", kArray, 0, 0, 1}})), "the checksum of 'a.npy' is wrong"));
  CHECK(contains(refused(zip({{"a.npy", kArray}, {"a", kArray}})), "two arrays have the name 'a'"));
  CHECK(contains(refused(zip({{"a.npy", "text"}})), "t.npz: a.npy: at byte 4: the file ends within the magic string"));
  CHECK(contains(refused(zip({{"a/", ""}, {"a.txt", "text"}})), "none of the 2 files in the archive is an npy array"));
  CHECK(contains(refused(zip({{"a.npy", npy("|O", "1", "12345678")}})), "Python objects are refused"));
}

TEST_CASE("npy: integers that no dtype has are widened, in both byte orders") {
  const auto check = [](const char* descr, const std::string& data, const std::string& expected, DType dtype) {
    const Value value = loaded(npy(descr, "2", data));
    CHECK(value.dtype() == dtype);
    CHECK(payload(value) == expected);
  };
  const std::string shorts("\1\xff\xfe\xff", 4), swapped("\xff\1\xff\xfe", 4);
  check("<i2", shorts, bytes_of<int32_t>({-255, -2}), DType::kInt32);
  check(">i2", swapped, bytes_of<int32_t>({-255, -2}), DType::kInt32);
  check("<u2", shorts, bytes_of<int32_t>({0xff01, 0xfffe}), DType::kInt32);
  check(">u2", swapped, bytes_of<int32_t>({0xff01, 0xfffe}), DType::kInt32);
  check("<u4", bytes_of<uint32_t>({7, ~0U}), bytes_of<int64_t>({7, 0xffffffff}), DType::kInt64);
  check(">u4", std::string("\0\0\0\7\xff\xff\xff\xff", 8), bytes_of<int64_t>({7, 0xffffffff}), DType::kInt64);
  check("<u8", bytes_of<uint64_t>({7, ~uint64_t(0) / 2}), bytes_of<int64_t>({7, INT64_MAX}), DType::kInt64);
  const std::string large = npy("<u8", "10000", std::string(79992, '\0') + bytes_of<uint64_t>({uint64_t(1) << 63}));
  const std::string error = error_of([&] { loaded(large); });
  CHECK(contains(error, "at byte " + std::to_string(large.size() - 8)));
  CHECK(contains(error, "element 10000 is 9223372036854775808, which int64 cannot hold"));
}

}  // namespace pg::test
