// Saved tensors load again, and files of other programs load.
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

constexpr DType kAll[] = {DType::kBool,    DType::kUInt8,    DType::kInt8,    DType::kInt32,  DType::kInt64,
                          DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

NamedTensors everything() {
  NamedTensors out;
  for (DType dtype : kAll) {
    out.tensors.emplace_back(std::string("z.") + name_of(dtype), sample(dtype, {3, 5}));
    out.tensors.emplace_back(std::string("a.") + name_of(dtype), sample(dtype, {}));
    out.tensors.emplace_back(std::string("empty.") + name_of(dtype), sample(dtype, {2, 0, 3}));
  }
  out.tensors.emplace_back("quoted \"name\" \\ \n \xc3\xa9", sample(DType::kUInt8, {1}));
  out.metadata = {{"format", "pt"}, {"text", "line\nbreak \"quoted\""}};
  return out;
}

// A transposed view of a new 2-dim array.
Value transposed_sample(int64_t rows, int64_t columns) {
  const Value base = sample(DType::kFloat32, {columns, rows});
  Ref<Array> view = Array::make(Type{DType::kFloat32, {}, {rows, columns}});
  view->buffer = base.array().buffer;
  view->strides = {1, rows};
  view->contiguous = false;
  return Value(std::move(view));
}

}  // namespace

TEST_CASE("safetensors: names, order, types, shapes, bytes and metadata survive") {
  Folder folder;
  const NamedTensors saved = everything();
  save_safetensors(folder / "t.safetensors", saved);
  const NamedTensors loaded = load_safetensors(folder / "t.safetensors");
  CHECK(loaded.metadata == saved.metadata);
  REQUIRE(loaded.tensors.size() == saved.tensors.size());
  for (size_t i = 0; i < saved.tensors.size(); ++i) {
    CHECK(loaded.tensors[i].first == saved.tensors[i].first);
    CHECK(same(loaded.tensors[i].second, saved.tensors[i].second));
  }
}

TEST_CASE("safetensors: the header is padded to 8 bytes and every tensor is aligned") {
  Folder folder;
  NamedTensors content;
  content.tensors = {{"byte", sample(DType::kUInt8, {3})}, {"double", sample(DType::kFloat64, {2})}};
  save_safetensors(folder / "t", content);
  const std::string bytes = get(folder / "t");
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(contains(bytes, R"("byte":{"dtype":"U8","shape":[3],"data_offsets":[16,19]})"));
  CHECK(contains(bytes, R"("double":{"dtype":"F64","shape":[2],"data_offsets":[0,16]})"));
  CHECK(bytes.size() == 8 + length + 19);
}

TEST_CASE("safetensors: empty files, numbers and strided tensors survive") {
  Folder folder;
  save_safetensors(folder / "t", {});
  CHECK(load_safetensors(folder / "t").tensors.empty());
  NamedTensors content;
  content.tensors = {{"number", Value(2.5)}, {"view", transposed_sample(2, 3)}};
  save_safetensors(folder / "t", content);
  const NamedTensors loaded = load_safetensors(folder / "t");
  CHECK(item(loaded.tensors[0].second) == 2.5);
  CHECK(payload(loaded.tensors[1].second) == bytes_of<float>({1, 15, 29, 8, 22, 36}));
}

TEST_CASE("safetensors: unsupported content is an error that writes nothing") {
  Folder folder;
  const Value x = sample(DType::kFloat32, {2});
  const auto error = [&](NamedTensors content) { return error_of([&] { save_safetensors(folder / "t", content); }); };
  CHECK(contains(error({{{"a", x}, {"a", x}}, {}}), "duplicate name 'a'"));
  CHECK(contains(error({{{"__metadata__", x}}, {}}), "reserved"));
  CHECK(contains(error({{{"a", Value()}}, {}}), "'a' is not a tensor"));
  CHECK(contains(error({{{"\xff", x}}, {}}), "not UTF-8"));
  CHECK(contains(error({{{"a", x}}, {{"k", "\xff"}}}), "not UTF-8"));
  CHECK(folder.count() == 0);
}

TEST_CASE("npy: types, shapes and bytes survive") {
  Folder folder;
  for (DType dtype : kAll) {
    if (dtype == DType::kBFloat16) continue;
    for (const Dims& shape : {Dims{}, Dims{4}, Dims{2, 3}, Dims{2, 0}, Dims{1, 1, 1, 1, 2}}) {
      const Value saved = sample(dtype, shape);
      save_npy(folder / "t.npy", saved);
      CHECK(same(load_npy(folder / "t.npy"), saved));
      CHECK((get(folder / "t.npy").size() - payload(saved).size()) % 64 == 0);
    }
  }
  CHECK(
      contains(error_of([&] { save_npy(folder / "x", sample(DType::kBFloat16, {1})); }), "npy has no dtype bfloat16"));
  CHECK(contains(error_of([&] { save_npy(folder / "x", Value()); }), "not a tensor"));
}

namespace {

std::string npy(const std::string& header, const std::string& data, int major = 1) {
  std::string out = "\x93NUMPY";
  out += char(major);
  out += '\0';
  const uint32_t length = uint32_t(header.size());
  out.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return out + header + data;
}

std::string dict(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }  \n";
}

}  // namespace

TEST_CASE("npy: every version, byte order and spelling loads, and Fortran order") {
  Folder folder;
  const auto load = [&](const std::string& bytes) {
    put(folder / "t.npy", bytes);
    return load_npy(folder / "t.npy");
  };
  const std::string data = bytes_of<int32_t>({1, 2, 3, 4, 5, 6});
  for (int major = 1; major <= 3; ++major)
    CHECK(payload(load(npy(dict("<i4", "False", "(2, 3)"), data, major))) == data);
  CHECK(payload(load(npy(dict("=i4", "False", "(2L, 3L)"), data))) == data);
  CHECK(payload(load(npy("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<i4\"}", data))) == data);
  CHECK(payload(load(npy(dict(">i4", "False", "(2,)"), std::string("\0\0\1\2\0\0\0\7", 8)))) ==
        bytes_of<int32_t>({258, 7}));
  CHECK(payload(load(npy(dict(">f8", "False", "()"), std::string("\x3f\xf8\0\0\0\0\0\0", 8)))) ==
        bytes_of<double>({1.5}));
  CHECK(payload(load(npy(dict("|b1", "False", "(2,)"), std::string("\1\0", 2)))) == std::string("\1\0", 2));
  const Value transposed = load(npy(dict("<i4", "True", "(2, 3)"), data));
  CHECK(transposed.shape() == Dims{2, 3});
  CHECK(transposed.array().contiguous);
  CHECK(payload(transposed) == bytes_of<int32_t>({1, 3, 5, 2, 4, 6}));
  CHECK(load(npy(dict("<i4", "True", "(0, 3)"), "")).shape() == Dims{0, 3});
  CHECK(payload(load(gzip(npy(dict("<i4", "False", "(6,)"), data)))) == data);
}

TEST_CASE("idx: every type loads, plain and gzipped") {
  Folder folder;
  const auto load = [&](const std::string& bytes) {
    put(folder / "plain", bytes);
    put(folder / "packed", gzip(bytes));
    const Value value = load_idx(folder / "plain");
    CHECK(same(value, load_idx(folder / "packed")));
    return value;
  };
  const auto head = [](char code) { return std::string("\0\0", 2) + code + std::string("\1\0\0\0\2", 5); };
  CHECK(payload(load(head(0x08) + "\1\xff")) == "\1\xff");
  CHECK(load(head(0x09) + "\1\xff").dtype() == DType::kInt8);
  CHECK(payload(load(head(0x0b) + std::string("\1\0\xff\xfe", 4))) == bytes_of<int32_t>({256, -2}));
  CHECK(payload(load(head(0x0c) + std::string("\0\0\1\0\xff\xff\xff\xff", 8))) == bytes_of<int32_t>({256, -1}));
  CHECK(payload(load(head(0x0d) + std::string("\x3f\x80\0\0\xc0\0\0\0", 8))) == bytes_of<float>({1, -2}));
  CHECK(payload(load(head(0x0e) + std::string("\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16))) ==
        bytes_of<double>({1, -2}));
  const Value images = load(std::string("\0\0\x08\3\0\0\0\2\0\0\0\1\0\0\0\2", 16) + "abcd");
  CHECK(images.shape() == Dims{2, 1, 2});
}

TEST_CASE("files of other programs: every fixture loads and survives saving") {
  const fs::path data = shared_data();
  if (data.empty()) return;
  Folder folder;
  int tensors = 0, arrays = 0;
  for (const auto& entry : fs::recursive_directory_iterator(data / "fixtures")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".npy") {
      ++arrays;
      const Value value = load_npy(path);
      save_npy(folder / "t", value);
      CHECK_MESSAGE(get(folder / "t").substr(128) == get(path).substr(128), path);
    } else if (entry.path().extension() == ".safetensors") {
      const NamedTensors loaded = load_safetensors(path);
      save_safetensors(folder / "t", loaded);
      const NamedTensors again = load_safetensors(folder / "t");
      REQUIRE(again.tensors.size() == loaded.tensors.size());
      for (size_t i = 0; i < again.tensors.size(); ++i, ++tensors)
        CHECK_MESSAGE(same(again.tensors[i].second, loaded.tensors[i].second), path, loaded.tensors[i].first);
    }
  }
  CHECK(tensors > 1000);
  CHECK(arrays > 20);
}

TEST_CASE("files of other programs: the original MNIST files load") {
  const fs::path data = shared_data();
  if (data.empty()) return;
  const Value images = load_idx((data / "mnist" / "t10k-images-idx3-ubyte.gz").string());
  CHECK(images.shape() == Dims{10000, 28, 28});
  const Value labels = load_idx((data / "mnist" / "t10k-labels-idx1-ubyte.gz").string());
  CHECK(payload(labels).substr(0, 5) == std::string("\7\2\1\0\4", 5));
  Folder folder;
  put(folder / "plain", read_file((data / "mnist" / "t10k-images-idx3-ubyte.gz").string()));
  CHECK(same(load_idx(folder / "plain"), images));
}

TEST_CASE("loading reads directly into the tensor") {
  Folder folder;
  const Value big = sample(DType::kFloat64, {1000, 500});
  const int64_t bytes = int64_t(payload(big).size());
  save_safetensors(folder / "s", {{{"big", big}}, {}});
  save_npy(folder / "n", big);
  const int64_t start = Runtime::current().memory().stats().live;
  Runtime::current().memory().reset_peak();
  load_safetensors(folder / "s");
  load_npy(folder / "n");
  CHECK(Runtime::current().memory().stats().peak == start + bytes);
  CHECK(Runtime::current().memory().stats().live == start);
}

TEST_CASE("loading and saving without memory are errors that leave no files") {
  Folder folder;
  const NamedTensors content = {{{"a", transposed_sample(2, 3)}, {"b", sample(DType::kInt64, {4})}}, {}};
  save_safetensors(folder / "s", content);
  const std::string old = get(folder / "s");
  const int64_t live = Runtime::current().memory().stats().live;
  const auto failures = [](auto f) {
    int count = 0;
    for (int64_t n = 1;; ++n) {
      fail_allocation(n, true);
      const std::string text = error_of(f);
      const bool failed = allocation_failed();
      fail_allocation(0);
      CHECK(failed == contains(text, "out of memory"));
      if (!failed) return count;
      ++count;
    }
  };
  CHECK(failures([&] { load_safetensors(folder / "s"); }) == 2);
  CHECK(failures([&] { save_safetensors(folder / "s", {{{"a", transposed_sample(2, 3)}}, {}}); }) >= 2);
  save_safetensors(folder / "s", content);
  CHECK(get(folder / "s") == old);
  CHECK(Runtime::current().memory().stats().live == live);
}

}  // namespace pg::test
