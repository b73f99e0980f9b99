// npy: a magic string, a Python dict literal that describes the array, the elements.
#include <algorithm>
#include <charconv>
#include <span>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg {
namespace {

constexpr uint64_t kMaxHeader = uint64_t(1) << 20;

struct TypeCode {
  const char* code;
  DType dtype;
};
// The first ones are written. The others are widened.
constexpr TypeCode kCodes[] = {{"b1", DType::kBool},    {"u1", DType::kUInt8},   {"i1", DType::kInt8},
                               {"i4", DType::kInt32},   {"i8", DType::kInt64},   {"f2", DType::kFloat16},
                               {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"i2", DType::kInt32},
                               {"u2", DType::kInt32},   {"u4", DType::kInt64},   {"u8", DType::kInt64}};
constexpr size_t kWritten = 8;

struct Description {
  const TypeCode* type = kCodes;
  bool big_endian = false, fortran_order = false;
  Dims shape;
};

// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
class HeaderReader {
 public:
  HeaderReader(const FileSource& file, std::string_view text, uint64_t start)
      : file_(file), text_(text), start_(start) {}

  Description read() {
    expect('{');
    bool descr = false, order = false, shape = false;
    while (peek() != '}') {
      const std::string_view key = string("a key");
      expect(':');
      if (key == "descr")
        once(descr, key), read_dtype();
      else if (key == "fortran_order")
        once(order, key), out_.fortran_order = boolean();
      else if (key == "shape")
        once(shape, key), read_shape();
      else
        fail("unknown key '{}'", key.substr(0, 40));
      if (peek() != '}') expect(',');
    }
    ++at_;
    if (peek() != '\0' || at_ < text_.size()) fail("text after the header");
    if (!descr || !order || !shape) fail("one of descr, fortran_order and shape is missing");
    return out_;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    file_.fail_at(start_ + at_, "header: {}", fmt::format(text, std::forward<Args>(args)...));
  }
  void once(bool& seen, std::string_view key) const {
    if (std::exchange(seen, true)) fail("duplicate key '{}'", key);
  }
  char peek() {  // returns the next character after white space, 0 at the end
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(char c) {
    if (peek() != c || at_ == text_.size()) fail("'{}' expected", c);
    ++at_;
  }
  std::string_view string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("{} in quotes expected", what);
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("the quote is not closed");
    const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    if (content.find('\\') != content.npos) fail("an escape in a string");
    at_ = end + 1;
    return content;
  }
  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    fail("True or False expected");
  }
  void read_dtype() {
    if (peek() == '[' || peek() == '(' || peek() == '{') fail("structured dtypes are not supported");
    const size_t begin = at_;
    const std::string_view descr = string("a dtype");
    std::string_view code = descr;
    if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
      out_.big_endian = code[0] == '>';
      code.remove_prefix(1);
    }
    if (code.starts_with('O')) fail("arrays of Python objects are refused: loading them would run code");
    for (const TypeCode& known : kCodes)
      if (code == known.code) {
        out_.type = &known;
        return;
      }
    at_ = begin;
    std::string known;
    for (const TypeCode& type : kCodes) known.append(known.empty() ? "" : ", ").append(type.code);
    fail("the dtype '{}' is not supported (expected {}; in Python, a.astype converts)", descr.substr(0, 40), known);
  }
  void read_shape() {
    expect('(');
    while (peek() != ')') {
      if (out_.shape.size() == kMaxRank) fail("more than {} dims", kMaxRank);
      int64_t dim = -1;
      const char* first = text_.data() + at_;
      const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) fail("a dim (a whole number from 0 to 2^63 - 1) expected");
      at_ += size_t(end - first);
      out_.shape.push_back(dim);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
      if (peek() == ')' && out_.shape.size() > 1) break;
      expect(',');  // in Python (3) is a number and (3,) a shape
    }
    ++at_;
  }

  const FileSource& file_;
  std::string_view text_;
  uint64_t start_;
  size_t at_ = 0;
  Description out_;
};

Description read_description(FileSource& file) {
  char magic[8];
  file.read(magic, sizeof magic, "the magic string");
  if (std::string_view(magic, 6) != kNpyMagic) file.fail_at(0, "not an npy file");
  const int major = static_cast<unsigned char>(magic[6]), minor = static_cast<unsigned char>(magic[7]);
  if (major < 1 || major > 3 || minor != 0) file.fail_at(6, "npy version {}.{} is not supported", major, minor);
  uint32_t length = 0;
  file.read(&length, major == 1 ? 2 : 4, "the length of the header");
  const uint64_t start = file.position();
  if (length > kMaxHeader || start + length > file.limit())
    file.fail_at(8, "the header length {} is more than {}", length,
                 length > kMaxHeader ? "an npy header can have" : "the file holds");
  std::string text(length, '\0');
  file.read(text.data(), length, "the header");
  if (const size_t zero = text.find('\0'); zero != text.npos) file.fail_at(start + zero, "header: a zero byte");
  return HeaderReader(file, text, start).read();
}

// Returns the value with its dims reversed, in row-major order.
Value transposed(const Value& value) {
  const Dims& shape = value.shape();
  const Dims strides = contiguous_strides(shape);
  Type type = value.type();
  Ref<Array> view = Array::make(type);
  view->buffer = value.array().buffer;
  const int rank = shape.size();
  for (int i = 0; i < rank; ++i) {
    view->type.shape[i] = shape[rank - 1 - i];
    view->strides[i] = strides[rank - 1 - i];
  }
  view->contiguous = is_contiguous(view->type.shape, view->strides);
  return host_array(Value(std::move(view)));
}

const char* code_of(DType dtype) {
  for (const TypeCode& known : std::span(kCodes).first(kWritten))
    if (known.dtype == dtype) return known.code;
  return nullptr;
}

std::string make_header(const Value& value) {
  std::string shape;
  for (int64_t d : value.shape()) shape += fmt::format("{}, ", d);
  if (value.rank() > 1) shape.resize(shape.size() - 2);
  if (value.rank() == 1) shape.resize(shape.size() - 1);
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(value.dtype()) == 1 ? '|' : '<', code_of(value.dtype()), shape);
  const size_t before = kNpyMagic.size() + 2 + 2;
  const size_t total = (before + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - before - 1, ' ');
  return text + "\n";
}

}  // namespace

Value read_npy(FileSource& file) {
  const Description d = read_description(file);
  Dims stored = d.shape;
  if (d.fortran_order) std::reverse(stored.begin(), stored.end());
  const char* code = d.type->code;
  const int size = code[1] - '0';
  const bool widened = d.type - kCodes >= ptrdiff_t(kWritten);
  file.check_payload(payload_bytes(file, file.position(), stored, uint64_t(size)));
  Value value = widened ? read_widened(file, {size, code[0] == 'i', d.big_endian}, stored, "the array")
                        : read_array(file, d.type->dtype, stored, "the array");
  file.require_end();
  if (d.big_endian && !widened) swap_bytes(value.array().data(), value.numel(), size);
  return d.fortran_order ? transposed(value) : value;
}

Value load_npy(const std::string& path) {
  FileSource file(path);
  return read_npy(file);
}

void save_npy(const std::string& path, const Value& value) {
  if (!value.defined()) throw Error(fmt::format("save: {}: not a tensor", path));
  const Value host = host_array(value);
  if (!code_of(host.dtype()))
    throw Error(fmt::format("save: {}: npy has no dtype {}; convert with x:to('float32') or save as safetensors", path,
                            name_of(host.dtype())));
  const std::string header = make_header(host);
  write_file_atomic(path, [&](FileSink& sink) {
    const uint16_t length = uint16_t(header.size());
    sink.write(kNpyMagic);
    sink.write(std::string_view("\1\0", 2));
    sink.write(&length, sizeof length);
    sink.write(header);
    sink.write(host.array().data(), bytes_of(host.type()).count());
  });
}

}  // namespace pg
