// Reading JSON without a tree: the reader of a format says what it expects next, and every refusal names the byte where it
// happened. Nothing is built but what was asked for, and nesting beyond the format's own is refused.
#pragma once
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace pg
