// Every malformed file is an error that names the file and a position.
#include <algorithm>
#include <random>

#include "tests/tensor/files.h"

namespace pg::test {
namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string npy(const std::string& header, const std::string& data = "") {
  const uint16_t length = uint16_t(header.size());
  return std::string("\x93NUMPY\1\0", 8) + std::string(reinterpret_cast<const char*>(&length), 2) + header + data;
}

std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data = "") {
  return npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}\n", data);
}

std::string bytes_of(auto... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return out;
}

// A .params file of a dense and a sparse array, with names.
std::string params() {
  const uint64_t none = 0, one = 1, two = 2, magic = 0x112;
  const uint32_t version = 0xF993FAC9, float32 = 0, int64 = 6, rank1 = 1, rank2 = 2, dense = 0, rows = 1;
  return bytes_of(magic, none, two, version, dense, rank1, two, one, float32, 1.5f, 2.5f) +
         bytes_of(version, rows, rank2, one, two, rank2, two, two, one, float32, int64, rank1, one, 3.5f, 4.5f, one) +
         bytes_of(two, one, 'a', one, 'b');
}

struct Loader {
  const char* name;
  void (*load)(const std::string& path);
};
const Loader kSafetensors = {"safetensors", [](const std::string& path) { load_safetensors(path); }};
const Loader kNpy = {"npy", [](const std::string& path) { load_npy(path); }};
const Loader kIdx = {"idx", [](const std::string& path) { load_idx(path); }};
const Loader kParams = {"params", [](const std::string& path) { load_params(path); }};

// Returns the error of loading a file of these bytes. It must name the file and a position within it.
std::string refused(const Loader& loader, const std::string& bytes) {
  static Folder folder;
  const std::string path = folder / "bad";
  put(path, bytes);
  const std::string text = error_of([&] { loader.load(path); });
  const std::string prefix = "load: " + path + ": at byte ";
  CHECK_MESSAGE(text.starts_with(prefix), loader.name, " of ", bytes.size(), " bytes: ", text);
  return text;
}

const std::string kTwo =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

struct BadHeader {
  const char* header;
  const char* error;
};

}  // namespace

TEST_CASE("safetensors: a file cut at any byte is refused") {
  const std::string whole = safetensors(kTwo, std::string(11, '\1'));
  for (size_t n = 0; n < whole.size(); ++n) refused(kSafetensors, whole.substr(0, n));
  CHECK(contains(refused(kSafetensors, whole + "x"), "1 trailing bytes"));
}

TEST_CASE("safetensors: wrong and malformed headers are refused") {
  const std::string deep(100000, '[');
  const std::string deep_objects = [] {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += R"({"a":)";
    return text;
  }();
  const BadHeader cases[] = {
      {R"([])", "does not start with '{'"},
      {R"({)", "the header length is 1"},
      {R"({ )", "malformed JSON"},
      {R"({} {})", "malformed JSON"},
      {R"({"a":1})", "expected an object, got 1"},
      {R"({"a":null})", "expected an object, got null"},
      {R"({"a":[]})", "expected an object, got an array"},
      {R"({"a":{}})", "no field 'dtype'"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "no field 'data_offsets'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", "unknown field 'more'"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "duplicate key 'dtype'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "duplicate key 'a'"},
      {R"({"\u0061":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "duplicate key 'a'"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "duplicate metadata key 'k'"},
      {R"({"__metadata__":{"k":1}})", "expected a string, got 1"},
      {R"({"__metadata__":{"k":{}}})", "expected a string, got an object"},
      {R"({"__metadata__":{},"__metadata__":{}})", "duplicate key '__metadata__'"},
      {R"({"__metadata__":"x"})", "expected an object, got \"x\""},
      {R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "unsupported dtype 'F31'"},
      {R"({"a":{"dtype":"U16","shape":[4],"data_offsets":[0,8]}})", "unsupported dtype 'U16'"},
      {R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})", "expected a string, got 5"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "expected an array, got 2"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       "expected a whole number from 0 to 9223372036854775807, got -2"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "got 2.0"},
      {R"({"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}})", "malformed JSON"},
      {R"({"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,8]}})", "malformed JSON"},
      {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", "expected a whole number, got \"2\""},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "expected a whole number, got an array"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", "more than 12 dims"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "got 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,8]}})",
       "got 99999999999999999999999"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}})", "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}})",
       "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "but data_offsets are 8 to 0"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "takes 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "leaves a hole"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "overlaps another"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
       "overlaps another"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "overlaps another"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "trailing bytes"},
      {R"({"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})", "too short"},
      {R"({"a":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "a bool of value 2"},
      {"{\"\xff\":{}}", "malformed JSON"},
      {deep.c_str(), "does not start with '{'"},
      {deep_objects.c_str(), "nested more than 256 deep"},
  };
  for (const BadHeader& c : cases) {
    const std::string text = refused(kSafetensors, safetensors(c.header, "\1\1\1\1\1\1\1\2"));
    CHECK_MESSAGE(contains(text, c.error), text, " for ", std::string(c.header).substr(0, 200));
  }
  CHECK(contains(refused(kSafetensors, safetensors(std::string("{}\0{", 4), "")), "zero byte"));
  CHECK(contains(refused(kSafetensors, safetensors("{\"a\":" + deep, "")), "nested more than 256 deep"));
}

TEST_CASE("safetensors: wrong lengths of the header are refused") {
  for (uint64_t length :
       {uint64_t(0), uint64_t(1), uint64_t(3), uint64_t(100'000'000), uint64_t(100'000'001), ~uint64_t(0)}) {
    std::string file(reinterpret_cast<const char*>(&length), 8);
    refused(kSafetensors, file + "{}");
  }
}

TEST_CASE("npy: a file cut at any byte or with trailing bytes is refused") {
  const std::string whole = npy_of("'<f4'", "(2, 3)", std::string(24, 'x'));
  for (size_t n = 0; n < whole.size(); ++n) refused(kNpy, whole.substr(0, n));
  CHECK(contains(refused(kNpy, whole + "yz"), "2 trailing bytes"));
}

TEST_CASE("npy: wrong and malformed headers are refused") {
  CHECK(contains(refused(kNpy, npy_of("'|O'", "(1,)", "12345678")), "Python objects are refused"));
  CHECK(contains(refused(kNpy, npy_of("[('a', '<f4')]", "(1,)", "1234")), "structured"));
  CHECK(contains(refused(kNpy, npy_of("'<c8'", "(1,)", "12345678")), "'<c8' is not supported"));
  CHECK(contains(refused(kNpy, npy_of("'<U4'", "(1,)", "12345678")), "not supported"));
  CHECK(contains(refused(kNpy, npy_of("''", "(1,)", "1")), "not supported"));
  CHECK(contains(refused(kNpy, npy_of("'<f4", "(1,)", "1234")), "header"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(-1,)")), "a dim"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(1.5,)", "1234")), "expected"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(1)", "1234")), "',' expected"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(,)", "1234")), "a dim"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(nan,)", "1234")), "a dim"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(1", "1234")), "header"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(99999999999999999999,)", "1234")), "a dim"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(9223372036854775807,)", "1234")), "too many elements"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(4294967296, 4294967296, 0)")), "too many elements"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(1099511627776,)", "1234")), "too short"));
  CHECK(contains(refused(kNpy, npy_of("'<f4'", "(1,1,1,1,1,1,1,1,1,1,1,1,1)", "1234")), "more than 12 dims"));
  CHECK(contains(refused(kNpy, npy_of("'|b1'", "(2,)", "\1\2")), "a bool of value 2"));
  CHECK(contains(refused(kNpy, npy("{'descr': '<f4', 'descr': '<f4'}")), "duplicate key 'descr'"));
  CHECK(contains(refused(kNpy, npy("{'descr': '<f4', 'fortran_order': False}")), "is missing"));
  CHECK(contains(refused(kNpy, npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}")), "True or False"));
  CHECK(contains(refused(kNpy, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}")), "unknown key"));
  CHECK(contains(refused(kNpy, npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "1234")), "text after"));
  CHECK(contains(refused(kNpy, npy(std::string(60000, '{'))), "header"));
  CHECK(contains(refused(kNpy, std::string("\x93NUMPY\4\0\0\0", 10)), "version 4.0"));
  CHECK(contains(refused(kNpy, std::string("\x93NUMPY\1\1\0\0", 10)), "version 1.1"));
  CHECK(contains(refused(kNpy, std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13)), "header length"));
  CHECK(contains(refused(kNpy, "PK\3\4 an npz archive"), "not an npy file"));
}

TEST_CASE("idx: malformed files are refused") {
  const std::string whole = std::string("\0\0\x08\2\0\0\0\2\0\0\0\3", 12) + "abcdef";
  for (size_t n = 0; n < whole.size(); ++n) refused(kIdx, whole.substr(0, n));
  CHECK(contains(refused(kIdx, whole + "g"), "1 trailing bytes"));
  CHECK(contains(refused(kIdx, std::string("\0\1\x08\1\0\0\0\0", 8)), "not an idx file"));
  CHECK(contains(refused(kIdx, std::string("\0\0\x0a\1\0\0\0\0", 8)), "dtype code 0x0a"));
  CHECK(contains(refused(kIdx, std::string("\0\0\x08\0", 4)), "0 dims"));
  CHECK(contains(refused(kIdx, std::string("\0\0\x08\x0d", 4) + std::string(52, '\0')), "13 dims"));
  CHECK(contains(refused(kIdx, std::string("\0\0\x08\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16)),
                 "too many elements"));
  CHECK(contains(refused(kIdx, std::string("\0\0\x0e\1\x7f\xff\xff\xff", 8)), "too short"));
}

TEST_CASE("params: a file cut at any byte is refused") {
  for (size_t n = 0; n < params().size(); ++n) refused(kParams, params().substr(0, n));
  CHECK(contains(refused(kParams, params() + "x"), "trailing bytes"));
  Folder folder;
  put(folder / "whole", params());
  const Params whole = load_params(folder / "whole");
  CHECK(whole.names == std::vector<std::string>{"a", "b"});
  CHECK(to_string(whole.arrays[1].shape()) == "2x2");
}

TEST_CASE("gzip: damaged streams are refused") {
  const std::string plain = std::string("\0\0\x08\1\0\0\x10\0", 8) + std::string(4096, 'a');
  const std::string packed = gzip(plain);
  for (size_t n = 3; n < packed.size(); ++n) refused(kIdx, packed.substr(0, n));
  CHECK(contains(refused(kIdx, packed.substr(0, packed.size() - 1)), "truncated"));
  CHECK(contains(refused(kIdx, packed + "junk"), "trailing bytes"));
  CHECK(contains(refused(kIdx, packed + packed), "trailing bytes"));
  std::string wrong_sum = packed;
  wrong_sum[packed.size() - 6] ^= 1;
  CHECK(contains(refused(kIdx, wrong_sum), "damaged"));
  CHECK(contains(refused(kIdx, gzip(std::string("\0\0\x08\1\x7f\xff\xff\xff", 8))), "too short"));
}

TEST_CASE("gzip: consecutive members are one content, and bombs are refused") {
  Folder folder;
  put(folder / "two", gzip("abc") + gzip("def"));
  CHECK(read_file(folder / "two") == "abcdef");
  put(folder / "empty", gzip(""));
  CHECK(read_file(folder / "empty").empty());
  put(folder / "bomb", gzip(std::string(size_t(80) << 20, '\0')));
  CHECK(contains(error_of([&] { read_file(folder / "bomb"); }), "longer than"));
}

TEST_CASE("paths that are not files are errors") {
  Folder folder;
  for (const Loader& loader : {kSafetensors, kNpy, kIdx, kParams}) {
    const auto error = [&](const std::string& path) { return error_of([&] { loader.load(path); }); };
    CHECK(error(folder / "absent") == "load: " + (folder / "absent") + ": No such file or directory");
    CHECK(contains(error(folder / "."), "not a regular file"));
    CHECK(contains(error("/dev/zero"), "not a regular file"));
    CHECK(contains(error(std::string("a\0b", 3)), "zero byte"));
    CHECK(!error("").empty());
  }
}

// Mutations of valid files either load or throw an Error.
TEST_CASE("fuzz: mutated files load or are refused") {
  Folder folder;
  NamedTensors content;
  content.metadata = {{"k", "v"}};
  content.tensors = {
      {"a", sample(DType::kFloat32, {2, 3})}, {"b", sample(DType::kBool, {4})}, {"c", sample(DType::kInt64, {})}};
  save_safetensors(folder / "seed", content);
  const std::string seeds[] = {get(folder / "seed"), npy_of("'>f8'", "(2, 3)", std::string(48, 'x')),
                               gzip(npy_of("'<i4'", "(2,)", std::string(8, 'x'))),
                               std::string("\0\0\x0b\2\0\0\0\2\0\0\0\3", 12) + "abcdefghijkl", params()};
  const Loader loaders[] = {kSafetensors, kNpy, kNpy, kIdx, kParams};
  std::mt19937 random(20240607);
  const auto below = [&](size_t n) { return size_t(random() % n); };
  const std::string interesting = std::string("\0\1\x7f\x80\xff", 5) + "{}[]()\"',:0129-.eTF";
  int loaded = 0;
  for (int round = 0; round < 5000; ++round) {
    const size_t which = below(std::size(seeds));
    std::string bytes = seeds[which];
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(bytes.size()), length = std::min(1 + below(8), bytes.size() - at);
      switch (below(5)) {
        case 0:
          bytes[at] = char(bytes[at] ^ (1 << below(8)));
          break;
        case 1:
          bytes[at] = interesting[below(interesting.size())];
          break;
        case 2:
          bytes.erase(at, length);
          break;
        case 3:
          bytes.insert(at, bytes.substr(below(bytes.size()), length));
          break;
        default:
          bytes.insert(at, 1, interesting[below(interesting.size())]);
      }
      if (bytes.empty()) bytes = "x";
    }
    put(folder / "f", bytes);
    try {
      loaders[which].load(folder / "f");
      ++loaded;
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("load: "));
    }
  }
  CHECK(loaded > 0);
  CHECK(loaded < 4000);
}

}  // namespace pg::test
