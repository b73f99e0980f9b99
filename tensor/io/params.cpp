// MXNet's .params: a magic number, the arrays, their names; all little-endian and without padding.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg {
namespace {

constexpr uint64_t kMagic[2] = {0x112, 0};  // the second is reserved
// Versions of a record. The oldest has none: it starts with the number of dims.
constexpr uint32_t kV1 = 0xF993FAC8, kV2 = 0xF993FAC9, kV3 = 0xF993FACA;
// The allowed size of an array that is stored sparse: this factor of the file's size, or this many bytes.
constexpr uint64_t kMaxExpansion = 256, kAlwaysAllowed = uint64_t(64) << 20;

struct TypeFlag {
  const char* name;
  DType dtype;
  bool known;
};
constexpr TypeFlag kFlags[] = {
    {"float32", DType::kFloat32, true},  {"float64", DType::kFloat64, true}, {"float16", DType::kFloat16, true},
    {"uint8", DType::kUInt8, true},      {"int32", DType::kInt32, true},     {"int8", DType::kInt8, true},
    {"int64", DType::kInt64, true},      {"bool", DType::kBool, true},       {"int16", DType::kInt32, false},
    {"uint16", DType::kInt32, false},    {"uint32", DType::kInt64, false},   {"uint64", DType::kInt64, false},
    {"bfloat16", DType::kBFloat16, true}};

enum Storage : int32_t { kDense = 0, kRowSparse = 1, kCsr = 2 };

class ParamsReader {
 public:
  explicit ParamsReader(FileSource& file) : file_(file) {}

  Params read() {
    if (number<uint64_t>("the magic number") != kMagic[0]) file_.fail_at(0, "not a .params file of MXNet");
    number<uint64_t>("the reserved number");
    Params out;
    const uint64_t at = file_.position(), count = number<uint64_t>("the number of arrays");
    if (count > room() / sizeof(uint32_t)) file_.fail_at(at, "{} arrays are more than the file can hold", count);
    for (uint64_t i = 1; i <= count; ++i) {
      what_ = fmt::format("array {} of {}", i, count);
      out.arrays.push_back(read_record());
    }
    read_names(out);
    file_.require_end();
    return out;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(uint64_t at, fmt::format_string<Args...> text, Args&&... args) const {
    file_.fail_at(at, "{}: {}", what_, fmt::format(text, std::forward<Args>(args)...));
  }
  uint64_t room() const { return file_.limit() - file_.position(); }

  template <class T>
  T number(std::string_view what) {
    T value{};
    file_.read(&value, sizeof value, what);
    return value;
  }

  template <class T>
  Dims read_dims(uint64_t at, uint32_t rank) {
    if (rank > uint32_t(kMaxRank)) fail(at, "{} dims (at most {} expected)", rank, kMaxRank);
    Dims shape;
    for (uint32_t d = 0; d < rank; ++d) {
      const uint64_t dim_at = file_.position();
      const int64_t dim = int64_t(number<T>(what_));
      if (dim < 0 && !(unknown_dims_ && dim == -1)) fail(dim_at, "a dim of {}", dim);
      if (dim < 0) none_ = true;
      shape.push_back(dim);
    }
    return shape;
  }

  Dims read_shape() {
    const uint64_t at = file_.position();
    const int32_t rank = number<int32_t>(what_);
    if (unknown_dims_ && rank == -1) none_ = true;
    if (rank < 0 && !none_) fail(at, "{} dims", rank);
    return rank < 0 ? Dims() : read_dims<int64_t>(at, uint32_t(rank));
  }

  DType read_dtype() {
    const uint64_t at = file_.position();
    const int32_t flag = number<int32_t>(what_);
    if (flag < 0 || size_t(flag) >= std::size(kFlags)) fail(at, "the unknown dtype {}", flag);
    if (!kFlags[flag].known) fail(at, "the dtype {} is not supported", kFlags[flag].name);
    return kFlags[flag].dtype;
  }

  // Reads the elements of an array, which the rest of the file must hold.
  Value read_elements(DType dtype, const Dims& shape) {
    const uint64_t at = file_.position(), bytes = payload_bytes(file_, at, shape, uint64_t(size_of(dtype)));
    if (bytes > room())
      fail(at, "{} {} takes {} bytes, the file has {}", name_of(dtype), to_string(shape), bytes, room());
    return read_array(file_, dtype, shape, what_);
  }

  Value read_record() {
    const uint64_t at = file_.position();
    const uint32_t version = number<uint32_t>(what_);
    const bool has_storage = version == kV2 || version == kV3;
    none_ = false;
    unknown_dims_ = version == kV3;
    int32_t storage = kDense;
    if (has_storage) {
      storage = number<int32_t>(what_);
      if (storage < kDense || storage > kCsr) fail(at + 4, "the unknown kind of storage {}", storage);
      if (storage != kDense && version == kV3) fail(at + 4, "a sparse array in a record of version 3");
    }
    const Dims stored = storage == kDense ? Dims() : read_shape();
    const uint64_t shape_at = file_.position();
    if (!has_storage && version != kV1 && version > uint32_t(kMaxRank))
      fail(at, "0x{:08x} is neither the version of an array nor a number of dims", version);
    const Dims shape = has_storage || version == kV1 ? read_shape() : read_dims<uint32_t>(at, version);
    if (none_ || (version != kV3 && shape.size() == 0)) return make_array(Type{DType::kFloat32, {}, Dims{0}});
    number<uint64_t>(what_);  // the device
    const DType dtype = read_dtype();
    return storage == kDense ? read_elements(dtype, shape) : read_sparse(storage, dtype, stored, shape, shape_at);
  }

  struct Indices {
    DType dtype;
    int64_t count;
  };
  Indices read_indices_header(int64_t expected) {
    const uint64_t at = file_.position();
    const DType dtype = read_dtype();
    if (dtype != DType::kInt32 && dtype != DType::kInt64) fail(at, "indices of dtype {}", name_of(dtype));
    const Dims shape = read_shape();
    if (shape.size() != 1 || shape[0] != expected)
      fail(at, "indices of shape {} (expected {})", to_string(shape), expected);
    return {dtype, expected};
  }

  // Reads whole numbers, each from `low` to `high`.
  std::vector<int64_t> read_indices(const Indices& header, int64_t low, int64_t high) {
    const uint64_t at = file_.position();
    const Value raw = read_elements(header.dtype, Dims{header.count});
    std::vector<int64_t> out(static_cast<size_t>(header.count));
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = header.dtype == DType::kInt32 ? static_cast<const int32_t*>(raw.array().data())[i]
                                             : static_cast<const int64_t*>(raw.array().data())[i];
      if (out[i] < low || out[i] > high) fail(at, "the index {} (expected {} to {})", out[i], low, high);
    }
    return out;
  }

  // Makes the dense array of a sparse one.
  Value read_sparse(int32_t storage, DType dtype, const Dims& stored, const Dims& shape, uint64_t at) {
    if (storage == kCsr && (shape.size() != 2 || stored.size() != 1))
      fail(at, "a csr array of shape {} with {} dims of data", to_string(shape), stored.size());
    if (storage == kRowSparse) {
      bool same = stored.size() == shape.size();
      for (int d = 1; same && d < shape.size(); ++d) same = stored[d] == shape[d];
      if (!same) fail(at, "rows of shape {} in an array of shape {}", to_string(stored), to_string(shape));
    }
    const uint64_t width = uint64_t(size_of(dtype)), bytes = payload_bytes(file_, at, shape, width);
    if (bytes > std::max(kAlwaysAllowed, file_.limit() * kMaxExpansion))
      fail(at, "a sparse array of shape {}, far larger than the file", to_string(shape));
    if (shape[0] == INT64_MAX) fail(at, "shape {} has too many elements", to_string(shape));
    const Indices starts_header = storage == kCsr ? read_indices_header(shape[0] + 1) : Indices{};
    const Indices header = read_indices_header(stored[0]);
    const Value data = read_elements(dtype, stored);
    const Value out = make_array(Type{dtype, {}, shape});
    auto* to = static_cast<char*>(out.array().data());
    const auto* from = static_cast<const char*>(data.array().data());
    std::memset(to, 0, bytes);
    if (storage == kRowSparse) {
      const std::vector<int64_t> rows = read_indices(header, 0, shape[0] - 1);
      const uint64_t row = shape[0] ? bytes / uint64_t(shape[0]) : 0;
      for (size_t i = 0; row && i < rows.size(); ++i) std::memcpy(to + uint64_t(rows[i]) * row, from + i * row, row);
      return out;
    }
    const uint64_t starts_at = file_.position();
    const std::vector<int64_t> starts = read_indices(starts_header, 0, stored[0]);
    const std::vector<int64_t> columns = read_indices(header, 0, shape[1] - 1);
    if (starts.front() != 0 || starts.back() != stored[0] || !std::is_sorted(starts.begin(), starts.end()))
      fail(starts_at, "the starts of the rows do not ascend from 0 to {}", stored[0]);
    for (int64_t r = 0; r < shape[0]; ++r)
      for (int64_t i = starts[size_t(r)]; i < starts[size_t(r) + 1]; ++i)
        std::memcpy(to + uint64_t(r * shape[1] + columns[size_t(i)]) * width, from + uint64_t(i) * width, width);
    return out;
  }

  void read_names(Params& out) {
    const uint64_t at = file_.position(), count = number<uint64_t>("the number of names");
    if (count != 0 && count != out.arrays.size()) file_.fail_at(at, "{} names for {} arrays", count, out.arrays.size());
    std::unordered_set<std::string> known;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t name_at = file_.position(), length = number<uint64_t>("the length of a name");
      if (length > room()) file_.fail_at(name_at, "a name of {} bytes, the file has {}", length, room());
      std::string name(length, '\0');
      file_.read(name.data(), length, "a name");
      if (!known.insert(name).second) file_.fail_at(name_at, "duplicate name '{}'", name.substr(0, 1000));
      out.names.push_back(std::move(name));
    }
  }

  FileSource& file_;
  std::string what_;           // which array is being read
  bool unknown_dims_ = false;  // whether a dim or the number of dims may be -1
  bool none_ = false;          // whether one was: the array has no elements and the record ends behind its shape
};

}  // namespace

Params load_params(const std::string& path) {
  FileSource file(path, FileSource::Gzip::kNever);
  return ParamsReader(file).read();
}

bool is_params(const std::string& path) {
  FileSource file(path, FileSource::Gzip::kNever);
  uint64_t start[2] = {};
  return file.read_some(start, sizeof start) == sizeof start && start[0] == kMagic[0] && start[1] == kMagic[1];
}

}  // namespace pg
