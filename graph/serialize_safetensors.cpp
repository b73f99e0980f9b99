// safetensors: u64 length of a JSON header, the header, then the bytes of all tensors without gap or overlap.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "graph/serialize.h"
#include "graph/serialize_file.h"
#include "graph/serialize_json.h"

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
  uint64_t at = 0;  // where the header describes it
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Feeds the parser and tells the handler where it stands.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  const char** seen;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    *seen = ++at;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

// Takes the parser's events. Anything but the structure of the format is an error at once, so nesting is
// bounded, duplicate keys are seen, and no tree is built.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const FileSource& file, std::string_view text) : file_(file), text_(text), seen_(text.data()) {}

  Header read() {
    const CountingIterator first{text_.data(), &seen_}, last{text_.data() + text_.size(), &seen_};
    nlohmann::json::sax_parse(first, last, this);
    return std::move(header_);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override { unexpected("the number " + text.substr(0, 40)); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool number_integer(int64_t n) override { unexpected(fmt::format("the number {}", n)); }
  bool number_unsigned(uint64_t n) override {
    if (where_ == Where::kShape)
      add_dim(n);
    else if (where_ == Where::kOffsets && offsets_ < 2)
      (offsets_++ == 0 ? entry().begin : entry().end) = n;
    else
      unexpected(fmt::format("the number {}", n));
    return true;
  }
  bool string(std::string& text) override {
    if (where_ == Where::kMetadata) {
      header_.metadata[key_] = std::move(text);
    } else if (where_ == Where::kDType) {
      const auto dtype = dtype_from_code(text);
      if (!dtype) fail("tensor '{}' has the unsupported dtype '{}'", entry().name, text.substr(0, 40));
      entry().dtype = *dtype;
      where_ = Where::kEntry;
    } else {
      unexpected("a string");
    }
    return true;
  }
  bool key(std::string& name) override {
    key_ = name.substr(0, 1000);
    if (where_ == Where::kTop) return top_key(name);
    if (where_ == Where::kMetadata) {
      if (header_.metadata.contains(name)) fail("duplicate metadata key '{}'", key_);
      key_ = std::move(name);
      return true;
    }
    return field_key(name);
  }
  bool start_object(size_t) override {
    if (where_ == Where::kNowhere)
      where_ = Where::kTop;
    else if (where_ == Where::kTensor)
      where_ = Where::kEntry;
    else if (where_ == Where::kMetadataStart)
      where_ = Where::kMetadata;
    else
      unexpected("an object");
    return true;
  }
  bool end_object() override {
    if (where_ == Where::kEntry && fields_ != (kHasDType | kHasShape | kHasOffsets))
      fail("tensor '{}' lacks dtype, shape or data_offsets", entry().name);
    where_ = where_ == Where::kTop ? Where::kNowhere : Where::kTop;
    return true;
  }
  bool start_array(size_t) override {
    if (where_ == Where::kShapeStart)
      where_ = Where::kShape;
    else if (where_ == Where::kOffsetsStart)
      where_ = Where::kOffsets;
    else
      unexpected("an array");
    return true;
  }
  bool end_array() override {
    if (where_ == Where::kOffsets && offsets_ != 2) fail("data_offsets of '{}' are not two numbers", entry().name);
    where_ = Where::kEntry;
    return true;
  }
  bool parse_error(size_t, const std::string& token, const nlohmann::json::exception&) override {
    fail("malformed JSON at '{}'", token.substr(0, 40));
  }

 private:
  enum class Where {
    kNowhere,
    kTop,
    kTensor,
    kEntry,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kMetadataStart,
    kMetadata
  };
  enum Fields { kHasDType = 1, kHasShape = 2, kHasOffsets = 4 };

  uint64_t at() const { return sizeof(uint64_t) + uint64_t(seen_ - text_.data()); }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    file_.fail_at(at(), "header: {}", fmt::format(text, std::forward<Args>(args)...));
  }
  [[noreturn]] void unexpected(const std::string& what) const {
    fail("{} is out of place{}", what, key_.empty() ? "" : " at '" + key_.substr(0, 100) + "'");
  }
  Entry& entry() { return header_.entries.back(); }

  void add_dim(uint64_t n) {
    if (n > uint64_t(std::numeric_limits<int64_t>::max())) fail("tensor '{}' has the dim {}", entry().name, n);
    if (entry().shape.size() == kMaxRank) fail("tensor '{}' has more than {} dims", entry().name, kMaxRank);
    entry().shape.push_back(int64_t(n));
  }
  bool top_key(std::string& name) {
    if (!names_.insert(name).second) fail("duplicate key '{}'", key_);
    where_ = name == kMetadata ? Where::kMetadataStart : Where::kTensor;
    if (where_ == Where::kMetadataStart) return true;
    header_.entries.emplace_back();
    entry().name = std::move(name);
    entry().at = at();
    fields_ = offsets_ = 0;
    return true;
  }
  bool field_key(const std::string& name) {
    const int field = name == "dtype"          ? kHasDType
                      : name == "shape"        ? kHasShape
                      : name == "data_offsets" ? kHasOffsets
                                               : 0;
    if (field == 0) fail("tensor '{}' has the unknown field '{}'", entry().name, key_);
    if (fields_ & field) fail("duplicate key '{}' of tensor '{}'", key_, entry().name);
    fields_ |= field;
    where_ = field == kHasDType ? Where::kDType : field == kHasShape ? Where::kShapeStart : Where::kOffsetsStart;
    return true;
  }

  const FileSource& file_;
  std::string_view text_;
  const char* seen_;
  Header header_;
  std::unordered_set<std::string> names_;
  Where where_ = Where::kNowhere;
  std::string key_;
  int fields_ = 0, offsets_ = 0;
};

Header read_header(FileSource& file) {
  uint64_t length = 0;
  file.read(&length, sizeof length, "the length of the header");
  if (length < 2 || length > kMaxHeader)
    file.fail_at(0, "the header length is {}, not from 2 to {}: not a safetensors file", length, kMaxHeader);
  if (length > file.limit() - sizeof length)
    file.fail_at(0, "the header length {} is more than the file holds ({} bytes)", length, file.limit());
  std::string text(length, '\0');
  file.read(text.data(), length, "the header");
  if (text[0] != '{') file.fail_at(sizeof length, "the header does not start with '{{'");
  // The JSON reader would take a zero byte for the end of its input.
  if (const size_t zero = text.find('\0'); zero != text.npos) file.fail_at(sizeof length + zero, "header: a zero byte");
  return HeaderReader(file, text).read();
}

// The order in which the tensors lie in the file, proven to be without gaps and overlaps up to its end.
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
                        Json(content.tensors[i].first).text(), kDTypeCodes[int(v.dtype())], Json::array_of(v.shape()).text(), begins[i],
                        begins[i] + bytes_of(v.type()).count());
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

}  // namespace

NamedTensors load_safetensors(const std::string& path) {
  FileSource file(path, FileSource::Gzip::kNever);
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

void save_safetensors(const std::string& path, const NamedTensors& content) {
  check_names(path, content);
  std::vector<Value> values;
  for (const auto& [name, value] : content.tensors) values.push_back(host_array(value));
  // Wide elements first, so that every tensor is aligned in the file.
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
  if (header.size() > kMaxHeader) throw Error(fmt::format("save: {}: the names and shapes take too much room", path));
  write_file_atomic(path, [&](FileSink& sink) {
    const uint64_t length = header.size();
    sink.write(&length, sizeof length);
    sink.write(header);
    for (size_t i : order) sink.write(values[i].array().data(), bytes_of(values[i].type()).count());
  });
}

}  // namespace pg
