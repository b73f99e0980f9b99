#include "graph/serialize_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

namespace pg {
namespace {

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3f));
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  }
}

// How long the UTF-8 sequence at `at` is; 0 when it is none.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t k) { return at + k < text.size() ? uint8_t(text[at + k]) : 0; };
  const auto follows = [&](size_t k) { return (byte(k) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    if (!follows(1) || !follows(2) || (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0)) return 0;
    return 3;
  }
  if (first >= 0xf0 && first < 0xf5) {
    if (!follows(1) || !follows(2) || !follows(3) || (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)) return 0;
    return 4;
  }
  return 0;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void JsonReader::fail_at(size_t position, const std::string& text) const {
  throw Error(fmt::format("load: {}: at byte {}: {}{}", source_, position, context(), text));
}

void JsonReader::space() {
  while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t' || text_[position_] == '\r'))
    ++position_;
}

char JsonReader::peek() {
  space();
  if (position_ == text_.size()) fail("the file ends here");
  return text_[position_];
}

void JsonReader::expect(char c) {
  if (peek() != c) fail(fmt::format("expected '{}'", c));
  ++position_;
}

JsonReader::Kind JsonReader::kind() {
  const char c = peek();
  if (c == '{') return Kind::kObject;
  if (c == '[') return Kind::kArray;
  if (c == '"') return Kind::kString;
  if (c == 't' || c == 'f') return Kind::kBoolean;
  if (c == 'n') return Kind::kNull;
  if (c == '-' || is_digit(c)) return Kind::kNumber;
  fail("malformed JSON");
}

void JsonReader::literal(std::string_view word) {
  space();
  if (text_.substr(position_, word.size()) != word) fail(fmt::format("expected {}", word));
  position_ += word.size();
}

void JsonReader::null() { literal("null"); }

bool JsonReader::boolean() {
  const char c = peek();
  if (c != 't' && c != 'f') fail("expected true or false");
  literal(c == 't' ? "true" : "false");
  return c == 't';
}

// The characters of a number by JSON's grammar.
std::string_view JsonReader::number_token() {
  peek();
  const size_t start = position_;
  auto digits = [&] {
    const size_t from = position_;
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
    if (position_ == from) fail_at(start, "expected a number");
  };
  auto take = [&](char c) { return position_ < text_.size() && text_[position_] == c && ++position_; };
  take('-');
  if (!take('0')) digits();
  if (take('.')) digits();
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    digits();
  }
  return text_.substr(start, position_ - start);
}

double JsonReader::number() {
  if (peek() == '"') {
    const size_t at = position_;
    const std::string text = string(8);
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    fail_at(at, "expected a number");
  }
  const size_t at = position_;
  const std::string_view token = number_token();
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error == std::errc::result_out_of_range) fail_at(at, "this number is out of range");
  if (error != std::errc() || end != token.data() + token.size()) fail_at(at, "expected a number");
  return value;
}

int64_t JsonReader::integer(int64_t low, int64_t high) {
  space();
  const size_t at = position_;
  const std::string_view token = number_token();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc() || end != token.data() + token.size() || value < low || value > high)
    fail_at(at, fmt::format("expected a whole number from {} to {}, got {}", low, high, token.substr(0, 30)));
  return value;
}

uint64_t JsonReader::natural() {
  space();
  const size_t at = position_;
  const std::string_view token = number_token();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc() || end != token.data() + token.size())
    fail_at(at, fmt::format("expected a whole number of at least 0, got {}", token.substr(0, 30)));
  return value;
}

uint32_t JsonReader::hex4() {
  uint32_t code = 0;
  const std::string_view digits = text_.substr(position_, 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) fail("malformed escape");
  position_ += 4;
  return code;
}

void JsonReader::escape(std::string& out) {
  const size_t at = position_ - 1;
  if (position_ == text_.size()) fail("the file ends within a string");
  const char c = text_[position_++];
  static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (const size_t k = kFrom.find(c); k != kFrom.npos) return void(out += kTo[k]);
  if (c != 'u') fail_at(at, "malformed escape");
  uint32_t code = hex4();
  if (code >= 0xdc00 && code < 0xe000) fail_at(at, "half of a surrogate pair");
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(position_, 2) != "\\u") fail_at(at, "half of a surrogate pair");
    position_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low >= 0xe000) fail_at(at, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(out, code);
}

std::string JsonReader::string(size_t longest) {
  if (peek() != '"') fail("expected a string");
  const size_t start = position_++;
  std::string out;
  while (true) {
    if (position_ >= text_.size()) fail("the file ends within a string");
    const char c = text_[position_];
    if (c == '"') break;
    if (uint8_t(c) < 0x20) fail("a control character within a string");
    if (out.size() > longest) fail_at(start, fmt::format("a string longer than {} bytes", longest));
    if (c == '\\') {
      ++position_;
      escape(out);
      continue;
    }
    const size_t length = utf8_length(text_, position_);
    if (length == 0) fail("a string that is not UTF-8");
    out.append(text_.substr(position_, length));
    position_ += length;
  }
  ++position_;
  return out;
}

void JsonReader::array(FunctionRef<void(size_t)> f) {
  expect('[');
  if (peek() == ']') return void(++position_);
  for (size_t i = 0;; ++i) {
    f(i);
    if (peek() == ']') break;
    expect(',');
  }
  ++position_;
}

void JsonReader::object(FunctionRef<void(const std::string&, size_t)> f) {
  expect('{');
  if (peek() == '}') return void(++position_);
  while (true) {
    peek();
    const size_t at = position_;
    const std::string key = string();
    expect(':');
    peek();
    f(key, at);
    if (peek() == '}') break;
    expect(',');
  }
  ++position_;
}

void JsonReader::skip() {
  std::vector<char> open;
  while (true) {
    const Kind next = kind();
    if (next == Kind::kArray || next == Kind::kObject) {
      if (open.size() == size_t(kMaxNesting)) fail(fmt::format("nested more than {} deep", kMaxNesting));
      open.push_back(text_[position_++] == '[' ? ']' : '}');
      if (peek() != open.back()) {
        if (open.back() == '}') string(), expect(':');
        continue;
      }
    } else if (next == Kind::kString) {
      string();
    } else if (next == Kind::kNumber) {
      number_token();
    } else {
      next == Kind::kNull ? null() : void(boolean());
    }
    while (!open.empty() && peek() == open.back()) {
      ++position_;
      open.pop_back();
    }
    if (open.empty()) return;
    expect(',');
    if (open.back() == '}') string(), expect(':');
  }
}

void JsonReader::end() {
  space();
  if (position_ != text_.size()) fail("more text after the end");
}

Json::Json(double value) {
  if (std::isnan(value)) text_ = "\"nan\"";
  else if (std::isinf(value)) text_ = value > 0 ? "\"inf\"" : "\"-inf\"";
  else text_ = fmt::format("{}", value);
  if (text_.find_first_not_of("-0123456789") == std::string::npos) text_ += ".0";
}

Json::Json(std::string_view value) {
  text_ = '"';
  for (size_t at = 0; at < value.size();) {
    const size_t length = utf8_length(value, at);
    if (length == 0) throw Error("a name or a string that is not UTF-8: " + as_utf8(value.substr(0, 200)));
    const unsigned char c = static_cast<unsigned char>(value[at]);
    if (c == '"' || c == '\\') text_ += '\\', text_ += char(c);
    else if (c < 0x20 || c == 0x7f) text_ += fmt::format("\\u{:04x}", int(c));
    else text_ += value.substr(at, length);
    at += length;
  }
  text_ += '"';
}

std::string Json::as_utf8(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8_length(bytes, at);
    if (length == 0) append_utf8(out, 0xfffd);
    else out += bytes.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace pg
