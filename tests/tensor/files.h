// Shared by the tests of file formats: a temporary folder, and files made of bytes.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg::test {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder(const Folder&) = delete;
  Folder() {
    std::string name = (fs::temp_directory_path() / "perigee-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t count() const { return size_t(std::distance(fs::directory_iterator(path_), fs::directory_iterator())); }

 private:
  fs::path path_;
};

inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (T v : values) out.append(reinterpret_cast<const char*>(&v), sizeof v);
  return out;
}

// Returns an array of this type whose elements differ.
inline Value sample(DType dtype, const Dims& shape, int seed = 1) {
  Value v = make_array(Type{dtype, {}, shape});
  for (int64_t i = 0; i < v.numel(); ++i)
    store_number(dtype, static_cast<char*>(v.array().data()) + i * size_of(dtype),
                 dtype == DType::kBool ? double((i + seed) % 2) : double((i * 7 + seed) % 100));
  return v;
}

inline std::string payload(const Value& v) {
  return {static_cast<const char*>(v.array().data()), size_t(v.numel()) * size_t(size_of(v.dtype()))};
}

inline bool same(const Value& a, const Value& b) { return a.type() == b.type() && payload(a) == payload(b); }

// Returns the text of the Error that f throws, or "" when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Returns the data folder beside the repository (or $PERIGEE_SHARED), or "". On CI it must exist.
inline fs::path shared_data() {
  const char* other = std::getenv("PERIGEE_SHARED");
  const fs::path path = (other ? fs::path(other) : fs::path(PERIGEE_SOURCE_DIR) / ".." / "shared") / "data";
  if (fs::is_directory(path)) return path;
  const char* ci = std::getenv("CI");
  if (ci && std::string(ci) == "true") FAIL("../shared/data is absent, and CI may not skip its tests");
  MESSAGE("skipped: ../shared/data is absent");
  return {};
}

}  // namespace pg::test
