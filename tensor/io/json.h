// Reads and writes JSON without building a tree: destroying the tree of nlohmann's library allocates memory, which ends
// a process that has none left.
#pragma once
#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/function_ref.h"

namespace pg {

// A text as a sequence of tokens. The reader of a format states what it expects next, and every error names the byte.
// The whole text is parsed before the first token is read.
class JsonReader {
 public:
  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
  static constexpr size_t kAbsent = size_t(-1);
  static constexpr size_t kMaxNesting = 256;

  // `source` names the text in errors; byte positions in errors start at `first`. Throws Error when the text is not
  // JSON.
  JsonReader(std::string source, std::string_view text, size_t first = 0);
  virtual ~JsonReader() = default;

  Kind kind() const { return token().kind; }  // of the next value
  bool is_whole() const;                      // whether it is a number without a fraction and an exponent
  bool boolean();
  double number();                                                     // also accepts "nan", "inf" and "-inf"
  static std::optional<double> special_number(std::string_view text);  // one of these three
  int64_t integer(int64_t low, int64_t high);                          // must be whole and within [low, high]
  uint64_t natural();                                                  // from 0 to 2^64 - 1
  std::string string(size_t longest = 1 << 20);                        // UTF-8
  void null();
  // Calls f(i) for each element. f must read the element.
  void array(FunctionRef<void(size_t)> f);
  // Calls f(key, its place) before each value. f must read the value.
  void object(FunctionRef<void(const std::string&, size_t)> f);
  // Reads an object and returns the places of the values of the named fields, kAbsent for those that are missing. The
  // reader is then behind the object. Throws for unknown and duplicate fields.
  template <size_t N>
  std::array<size_t, N> fields(const char* const (&names)[N]) {
    std::array<size_t, N> at;
    at.fill(kAbsent);
    object([&](const std::string& key, size_t key_at) {
      for (size_t k = 0; k < N; ++k) {
        if (key != names[k]) continue;
        if (at[k] != kAbsent) fail_at(key_at, fmt::format("duplicate key '{}'", key));
        at[k] = place();
        return skip();
      }
      fail_at(key_at, fmt::format("unknown field '{}'", key.substr(0, 60)));
    });
    return at;
  }
  void skip() { next_ = token().next; }  // skips one value of any kind

  size_t place() const { return next_; }  // of the next token; for seek and for errors
  void seek(size_t place) { next_ = place; }
  const std::string& source() const { return source_; }

  [[noreturn]] void fail(const std::string& text) const { fail_at(next_, text); }
  [[noreturn]] void fail_at(size_t place, const std::string& text) const { fail_at_byte(byte_of(place), text); }
  size_t byte_of(size_t place) const { return first_ + tokens_[place].begin; }

 protected:
  // Where the reader is, as a prefix of error texts: "node 12: ".
  virtual std::string context() const { return ""; }

 private:
  class Parser;
  struct Token {     // small: a text has at most one token per two bytes
    uint32_t begin;  // offset in the text
    uint32_t next;   // the token after the whole value; for a key, its value
    Kind kind;
  };
  const Token& token() const { return tokens_[next_]; }
  std::string_view written(size_t place) const;  // the text of a value that is not an array or object
  std::string_view take(Kind kind,
                        const char* expected);  // returns the text of the next token and moves into or behind it
  template <class T>
  T whole(T low, T high);
  [[noreturn]] void fail_at_byte(size_t byte, const std::string& text) const;

  std::string source_;
  std::string_view text_;
  size_t first_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

// A JSON value as text. Arrays and objects can only grow at their end. Only the UTF-8 of strings is checked.
class Json {
 public:
  Json(std::nullptr_t) : text_("null") {}
  Json(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) : text_(fmt::format("{}", value)) {}
  Json(double value);            // written as "nan", "inf" or "-inf" when not finite
  Json(std::string_view value);  // throws Error when it is not UTF-8
  Json(const std::string& value) : Json(std::string_view(value)) {}
  Json(const char* value) : Json(std::string_view(value)) {}

  static Json array(std::initializer_list<Json> items = {}) {
    Json out("[", ']');
    for (const Json& item : items) out.push(item);
    return out;
  }
  static Json array_of(const auto& items) {
    Json out = array();
    for (const auto& item : items) out.push(item);
    return out;
  }
  static Json object(std::initializer_list<std::pair<std::string_view, Json>> fields = {}) {
    Json out("{", '}');
    for (const auto& [name, value] : fields) out.set(name, value);
    return out;
  }
  // A string of any bytes; invalid UTF-8 becomes U+FFFD.
  static Json any_bytes(std::string_view bytes);

  Json& push(const Json& item) { return separate(), item.write(text_), *this; }
  Json& set(std::string_view name, const Json& value) {
    separate();
    Json(name).write(text_);
    text_ += ':';
    return value.write(text_), *this;
  }
  bool empty() const { return text_.size() == 1; }  // for arrays and objects only

  std::string text() const {
    std::string out;
    write(out);
    return out;
  }

 private:
  Json(const char* open, char close) : text_(open), close_(close) {}
  void separate() {
    if (!empty()) text_ += ',';
  }
  void write(std::string& out) const {
    out += text_;
    if (close_) out += close_;
  }

  std::string text_;
  char close_ = 0;  // of an array or object
};

}  // namespace pg
