#include "tensor/io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace pg {

// Turns the parser's events into tokens. Events have no positions, so this class follows the text itself.
class JsonReader::Parser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Parser(JsonReader& reader) : reader_(reader), text_(reader.text_) {}

  void parse() {
    if (text_.size() > std::numeric_limits<uint32_t>::max()) fail(0, "a text of more than 4 GiB");
    // The parser would treat a zero byte as the end of its input.
    if (const size_t zero = text_.find('\0'); zero != text_.npos) fail(zero, "malformed JSON: a zero byte");
    nlohmann::json::sax_parse(text_.begin(), text_.end(), this);
    push(Kind::kNull);  // the token after the whole text
  }

  bool null() override { return scalar(Kind::kNull); }
  bool boolean(bool) override { return scalar(Kind::kBoolean); }
  bool number_integer(int64_t) override { return scalar(Kind::kNumber); }
  bool number_unsigned(uint64_t) override { return scalar(Kind::kNumber); }
  bool number_float(double, const std::string&) override { return scalar(Kind::kNumber); }
  bool string(std::string&) override { return scalar(Kind::kString); }
  bool key(std::string&) override { return scalar(Kind::kString); }
  bool start_object(size_t) override { return open(Kind::kObject); }
  bool start_array(size_t) override { return open(Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool binary(binary_t&) override { return false; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) override {
    const std::string_view what = e.what();
    const size_t reason = what.find(" - ");
    fail(std::max<size_t>(position, 1) - 1,
         fmt::format("malformed JSON: {}", reason == what.npos ? what : what.substr(reason + 3)));
  }

 private:
  [[noreturn]] void fail(size_t byte, const std::string& text) const {
    reader_.fail_at_byte(reader_.first_ + byte, text);
  }

  void push(Kind kind) {
    at_ = std::min(text_.find_first_not_of(" \t\r\n,:", at_), text_.size());
    reader_.tokens_.push_back({uint32_t(at_), uint32_t(reader_.tokens_.size() + 1), kind});
  }
  bool scalar(Kind kind) {
    push(kind);
    at_ += reader_.written(reader_.tokens_.size() - 1).size();
    return true;
  }
  bool open(Kind kind) {
    push(kind);
    if (open_.size() == kMaxNesting) fail(at_, fmt::format("nested more than {} deep", kMaxNesting));
    open_.push_back(reader_.tokens_.size() - 1);
    ++at_;
    return true;
  }
  bool close() {
    reader_.tokens_[open_.back()].next = uint32_t(reader_.tokens_.size());
    open_.pop_back();
    at_ = text_.find_first_of("]}", at_) + 1;
    return true;
  }

  JsonReader& reader_;
  std::string_view text_;
  size_t at_ = 0;
  std::vector<size_t> open_;
};

JsonReader::JsonReader(std::string source, std::string_view text, size_t first)
    : source_(std::move(source)), text_(text), first_(first) {
  Parser(*this).parse();
}

void JsonReader::fail_at_byte(size_t byte, const std::string& text) const {
  throw Error(fmt::format("load: {}: at byte {}: {}{}", source_, byte, context(), text));
}

std::string_view JsonReader::written(size_t place) const {
  const size_t begin = tokens_[place].begin;
  size_t end = begin;
  if (tokens_[place].kind == Kind::kString) {
    while (text_[++end] != '"')
      if (text_[end] == '\\') ++end;
    ++end;
  } else {
    end = text_.find_first_of(" \t\r\n,]}", begin);
  }
  return text_.substr(begin, end - begin);
}

std::string_view JsonReader::take(Kind kind, const char* expected) {
  const Token& next = token();
  const bool nests = next.kind == Kind::kArray || next.kind == Kind::kObject;
  const std::string_view text = nests ? std::string_view() : written(next_);
  if (next.kind != kind)
    fail(fmt::format("expected {}, got {}", expected,
                     next.kind == Kind::kArray    ? "an array"
                     : next.kind == Kind::kObject ? "an object"
                                                  : text.substr(0, 40)));
  ++next_;
  return text;
}

void JsonReader::null() { take(Kind::kNull, "null"); }

bool JsonReader::boolean() { return take(Kind::kBoolean, "true or false") == "true"; }

bool JsonReader::is_whole() const {
  return kind() == Kind::kNumber && written(next_).find_first_of(".eE") == std::string_view::npos;
}

std::optional<double> JsonReader::special_number(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

double JsonReader::number() {
  const size_t at = next_;
  if (kind() == Kind::kString) {
    if (const auto special = special_number(string(8))) return *special;
    fail_at(at, "expected a number");
  }
  const std::string_view text = take(Kind::kNumber, "a number");
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
    fail_at(at, "this number is out of range");
  return value;
}

template <class T>
T JsonReader::whole(T low, T high) {
  const size_t at = next_;
  const std::string_view text = take(Kind::kNumber, "a whole number");
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    fail_at(at, fmt::format("expected a whole number from {} to {}, got {}", low, high, text.substr(0, 30)));
  return value;
}

int64_t JsonReader::integer(int64_t low, int64_t high) { return whole(low, high); }

uint64_t JsonReader::natural() { return whole<uint64_t>(0, std::numeric_limits<uint64_t>::max()); }

std::string JsonReader::string(size_t longest) {
  const size_t at = next_;
  const std::string_view text = take(Kind::kString, "a string");
  std::string out = std::move(nlohmann::json::parse(text).get_ref<std::string&>());
  if (out.size() > longest) fail_at(at, fmt::format("a string longer than {} bytes", longest));
  return out;
}

void JsonReader::array(FunctionRef<void(size_t)> f) {
  const size_t behind = token().next;
  take(Kind::kArray, "an array");
  for (size_t i = 0; next_ < behind; ++i) f(i);
}

void JsonReader::object(FunctionRef<void(const std::string&, size_t)> f) {
  const size_t behind = token().next;
  take(Kind::kObject, "an object");
  while (next_ < behind) {
    const size_t at = next_;
    const std::string key = string();
    f(key, at);
  }
}

Json::Json(double value) {
  if (std::isnan(value))
    text_ = "\"nan\"";
  else if (std::isinf(value))
    text_ = value > 0 ? "\"inf\"" : "\"-inf\"";
  else
    text_ = fmt::format("{}", value);
  if (text_.find_first_not_of("-0123456789") == std::string::npos) text_ += ".0";
}

Json::Json(std::string_view value) {
  try {
    text_ = nlohmann::json(value).dump();
  } catch (const nlohmann::json::type_error&) {
    throw Error("a name or a string that is not UTF-8: " + any_bytes(value.substr(0, 200)).text());
  }
}

Json Json::any_bytes(std::string_view bytes) {
  Json out(nullptr);
  out.text_ = nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return out;
}

}  // namespace pg
