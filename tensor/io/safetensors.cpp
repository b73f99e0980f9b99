// safetensors: the length of a JSON header as u64, the header, then the bytes of all tensors without gaps or overlaps.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "tensor/io/file.h"
#include "tensor/io/formats.h"
#include "tensor/io/json.h"

namespace pg {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own implementation
constexpr const char* kMetadata = "__metadata__";

constexpr const char* kDTypeCodes[kDTypeCount] = {"BOOL", "U8", "I8", "I32", "I64", "F16", "BF16", "F32", "F64"};

std::optional<DType> dtype_from_code(std::string_view code) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (code == kDTypeCodes[i]) return DType(i);
  return std::nullopt;
}

struct Entry {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims shape;
  uint64_t begin = 0, end = 0;
  uint64_t at = 0;  // position in the file of its entry in the header
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

class HeaderReader : public JsonReader {
 public:
  // The header begins behind its length.
  HeaderReader(const FileSource& file, std::string_view text) : JsonReader(file.path(), text, sizeof(uint64_t)) {}

  Header read() {
    Header out;
    std::unordered_set<std::string> names;
    object([&](const std::string& name, size_t at) {
      if (!names.insert(name).second) fail_at(at, fmt::format("duplicate key '{}'", name.substr(0, 1000)));
      if (name == kMetadata) return read_metadata(out.metadata);
      out.entries.push_back(read_entry(name));
      out.entries.back().at = byte_of(at);
    });
    return out;
  }

 private:
  std::string context() const override { return tensor_.empty() ? "header: " : "header: tensor '" + tensor_ + "': "; }

  void read_metadata(std::map<std::string, std::string>& metadata) {
    object([&](const std::string& key, size_t at) {
      if (!metadata.emplace(key, string(kMaxHeader)).second)
        fail_at(at, fmt::format("duplicate metadata key '{}'", key.substr(0, 1000)));
    });
  }

  Entry read_entry(const std::string& name) {
    Entry out;
    out.name = name;
    tensor_ = name.substr(0, 1000);
    static constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};
    const std::array at = fields(kFields);
    const size_t behind = place();
    for (size_t k = 0; k < at.size(); ++k)
      if (at[k] == kAbsent) fail(fmt::format("no field '{}'", kFields[k]));
    seek(at[0]);
    const std::string code = string();
    const auto dtype = dtype_from_code(code);
    if (!dtype)
      fail_at(at[0], fmt::format("the unsupported dtype '{}' (expected {})", code.substr(0, 40),
                                 fmt::join(kDTypeCodes, ", ")));
    out.dtype = *dtype;
    seek(at[1]), array([&](size_t) {
      if (out.shape.size() == kMaxRank) fail(fmt::format("more than {} dims", kMaxRank));
      out.shape.push_back(integer(0, std::numeric_limits<int64_t>::max()));
    });
    size_t offsets = 0;
    seek(at[2]), array([&](size_t k) { ++offsets, (k == 0 ? out.begin : out.end) = natural(); });
    if (offsets != 2) fail_at(at[2], "data_offsets are not two numbers");
    seek(behind);
    tensor_.clear();
    return out;
  }

  std::string tensor_;  // name of the tensor that is being read
};

struct Magic {
  std::string_view start, kind;
};
constexpr std::string_view kGzip = "\x1f\x8b\x08";
constexpr Magic kOtherFormats[] = {{"PK\3\4", "a zip archive, which torch.save and numpy.savez write"},
                                   {"\x80", "a pickle of Python"},
                                   {"\x93NUMPY", "a .npy file, which pg.load reads"},
                                   {"\x89HDF", "an HDF5 file"},
                                   {kGzip, "a gzip archive"},
                                   {"\x89PNG", "a PNG image"},
                                   {"\xff\xd8\xff", "a JPEG image"},
                                   {"{", "JSON"}};

// Returns what the file seems to be by its first bytes, or an empty text.
std::string_view guess_kind(std::string_view start) {
  for (const Magic& format : kOtherFormats)
    if (start.starts_with(format.start)) return format.kind;
  const bool text = std::all_of(start.begin(), start.end(),
                                [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
  return text ? "text" : "";
}

Header read_header(FileSource& file) {
  char start[sizeof(uint64_t)];
  file.read(start, sizeof start, "the length of the header");
  uint64_t length = 0;
  std::memcpy(&length, start, sizeof length);
  const bool gzip = std::string_view(start, sizeof start).starts_with(kGzip);  // as a length of a header it is odd
  if (length < 2 || length > kMaxHeader || gzip) {
    if (const auto kind = guess_kind({start, sizeof start}); !kind.empty())
      file.fail_at(0,
                   "not a safetensors file, but {} (expected safetensors, in Python safetensors.torch.save_file, or "
                   "MXNet's .params)",
                   kind);
    file.fail_at(0, "the header length is {}, not from 2 to {}: not a safetensors file", length, kMaxHeader);
  }
  if (length > file.limit() - sizeof length)
    file.fail_at(0, "the header length {} is more than the file holds ({} bytes)", length, file.limit());
  std::string text(length, '\0');
  file.read(text.data(), length, "the header");
  if (text[0] != '{') file.fail_at(sizeof length, "the header does not start with '{{'");
  return HeaderReader(file, text).read();
}

// Returns the tensors in the order of their bytes. Throws unless these have no gaps or overlaps and end with the file.
std::vector<size_t> check_layout(const FileSource& file, const std::vector<Entry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
  });
  uint64_t end = 0;
  for (size_t i : order) {
    const Entry& e = entries[i];
    const uint64_t bytes = payload_bytes(file, e.at, e.shape, uint64_t(size_of(e.dtype)));
    if (e.end < e.begin || e.end - e.begin != bytes)
      file.fail_at(e.at, "tensor '{}' of {} {} takes {} bytes, but data_offsets are {} to {}", e.name, name_of(e.dtype),
                   to_string(e.shape), bytes, e.begin, e.end);
    if (e.begin != end)
      file.fail_at(e.at, "tensor '{}' {} (it starts at {}, the data before it ends at {})", e.name,
                   e.begin < end ? "overlaps another" : "leaves a hole", e.begin, end);
    end = e.end;
  }
  file.check_payload(end);
  return order;
}

std::string make_header(const NamedTensors& content, const std::vector<Value>& values,
                        const std::vector<uint64_t>& begins) {
  std::string text = "{";
  Json metadata = Json::object();
  for (const auto& [name, value] : content.metadata) metadata.set(name, value);
  if (!content.metadata.empty()) text += Json(kMetadata).text() + ":" + metadata.text();
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                        Json(content.tensors[i].first).text(), kDTypeCodes[int(v.dtype())],
                        Json::array_of(v.shape()).text(), begins[i], begins[i] + bytes_of(v.type()).count());
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void check_names(const std::string& path, const NamedTensors& content) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, value] : content.tensors) {
    if (!names.insert(name).second) throw Error(fmt::format("save: {}: duplicate name '{}'", path, name));
    if (name == kMetadata) throw Error(fmt::format("save: {}: the name '{}' is reserved", path, name));
    if (!value.defined()) throw Error(fmt::format("save: {}: '{}' is not a tensor", path, name));
  }
}

NamedTensors read_all(FileSource& file) {
  Header header = read_header(file);
  const std::vector<size_t> order = check_layout(file, header.entries);
  NamedTensors out;
  out.metadata = std::move(header.metadata);
  out.tensors.resize(header.entries.size());
  for (size_t i : order) {
    Entry& e = header.entries[i];
    out.tensors[i].second = read_array(file, e.dtype, e.shape, "tensor '" + e.name + "'");
    out.tensors[i].first = std::move(e.name);
  }
  file.require_end();
  return out;
}

}  // namespace

NamedTensors load_safetensors(const std::string& path) {
  FileSource file(path, FileSource::Gzip::kNever);
  return read_all(file);
}

NamedTensors read_safetensors(const std::string& name, std::string_view content) {
  FileSource file(name, content);
  return read_all(file);
}

void save_safetensors(const std::string& path, const NamedTensors& content) {
  check_names(path, content);
  std::vector<Value> values;
  for (const auto& [name, value] : content.tensors) values.push_back(host_array(value));
  // Wide elements come first, so that every tensor is aligned in the file.
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(values[a].dtype()) > size_of(values[b].dtype()); });
  std::vector<uint64_t> begins(values.size());
  uint64_t end = 0;
  for (size_t i : order) {
    begins[i] = end;
    end += bytes_of(values[i].type()).count();
  }
  std::string header;
  try {
    header = make_header(content, values, begins);
  } catch (const Error& e) {
    throw Error(fmt::format("save: {}: {}", path, e.what()));
  }
  if (header.size() > kMaxHeader)
    throw Error(fmt::format("save: {}: the header of names and shapes is too long", path));
  write_file_atomic(path, [&](FileSink& sink) {
    const uint64_t length = header.size();
    sink.write(&length, sizeof length);
    sink.write(header);
    for (size_t i : order) sink.write(values[i].array().data(), bytes_of(values[i].type()).count());
  });
}

}  // namespace pg
