// Reading and writing JSON without a tree. (The tree of nlohmann's library takes memory to be destroyed, which ends a process
// that has none left.)
//
// The reader of a format says what it expects next, and every refusal names the byte where it
// happened. Nothing is built but what was asked for, and nesting beyond the format's own is refused.
#pragma once
#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/error.h"
#include "tensor/function_ref.h"

namespace pg {

class JsonReader {
 public:
  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
  static constexpr size_t kAbsent = size_t(-1);

  // `source` names the text in errors.
  JsonReader(std::string source, std::string_view text) : source_(std::move(source)), text_(text) {}
  virtual ~JsonReader() = default;

  Kind kind();  // of what comes next
  bool boolean();
  double number();                                  // "nan", "inf" and "-inf" too
  int64_t integer(int64_t low, int64_t high);       // exact
  uint64_t natural();                               // up to 2^64 - 1
  std::string string(size_t longest = 1 << 20);     // UTF-8
  void null();
  // Calls f(i) for each element, which must read it.
  void array(FunctionRef<void(size_t)> f);
  // Where the values of the object's fields stand, kAbsent where there are none; then the reader is behind the object.
  // Unknown and duplicate fields are refused.
  template <size_t N>
  std::array<size_t, N> fields(const char* const (&names)[N]) {
    std::array<size_t, N> at;
    at.fill(kAbsent);
    object([&](const std::string& key, size_t key_at) {
      for (size_t k = 0; k < N; ++k) {
        if (key != names[k]) continue;
        if (at[k] != kAbsent) fail_at(key_at, fmt::format("duplicate key '{}'", key));
        at[k] = position_;
        return skip();
      }
      fail_at(key_at, fmt::format("unknown field '{}'", shortened(key)));
    });
    return at;
  }
  // Calls f(key, where it stands) in front of each value, which f must read.
  void object(FunctionRef<void(const std::string&, size_t)> f);
  void skip();  // one value, of any kind; nested at most kMaxNesting deep
  void end();   // nothing may follow

  size_t position() const { return position_; }
  void seek(size_t position) { position_ = position; }
  const std::string& source() const { return source_; }

  [[noreturn]] void fail(const std::string& text) { fail_at(position_, text); }
  [[noreturn]] void fail_at(size_t position, const std::string& text) const;

  static constexpr int kMaxNesting = 256;

 protected:
  // What the reader is at, in front of an error's text: "node 12: ".
  virtual std::string context() const { return ""; }

 private:
  static std::string shortened(const std::string& text) { return text.substr(0, 60); }
  void space();
  char peek();
  void expect(char c);
  void literal(std::string_view word);
  std::string_view number_token();
  void escape(std::string& out);
  uint32_t hex4();

  std::string source_;
  std::string_view text_;
  size_t position_ = 0;
};

// A value as text. Arrays and objects grow at their end; nothing is checked but that strings are UTF-8.
class Json {
 public:
  Json(std::nullptr_t) : text_("null") {}
  Json(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Json(T value) : text_(fmt::format("{}", value)) {}
  Json(double value);  // "nan", "inf" and "-inf" where it is no number
  Json(std::string_view value);  // throws Error where it is no UTF-8
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
  // Every byte that is no part of a UTF-8 text becomes U+FFFD.
  static std::string as_utf8(std::string_view bytes);

  Json& push(const Json& item) { return separate(), item.write(text_), *this; }
  Json& set(std::string_view name, const Json& value) {
    separate();
    Json(name).write(text_);
    text_ += ':';
    return value.write(text_), *this;
  }
  bool empty() const { return text_.size() == 1; }  // of an array or object

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
