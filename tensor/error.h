// The errors of perigee. Their texts are part of the API.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>

namespace pg {

// The text is the part after `file:line: `; the binding adds the script position.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
};

// The text starts with its own `file:line: `; the binding adds nothing.
class PositionedError : public Error {
 public:
  using Error::Error;
};

// Memory for a tensor could not be allocated, even after the cache was flushed.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A value was read from an array that has only a type: a tensor that is being traced.
class NoValue : public Error {
 public:
  NoValue() : Error("a traced tensor has no value to read") {}
};

// Thrown at a poll point after a cancel request (Ctrl-C).
class Cancelled : public Error {
 public:
  Cancelled() : Error("interrupted") {}
};

// The modules of ops: scripts call the op linalg_inv pg.linalg.inv.
inline constexpr std::string_view kOpModules[] = {"fft", "linalg"};

// Returns the name by which scripts call an op, without "pg.": "linalg.inv" for "linalg_inv".
inline std::string public_name(std::string_view op) {
  std::string out(op);
  for (const std::string_view module : kOpModules)
    if (op.starts_with(module) && op.substr(module.size()).starts_with('_')) out[module.size()] = '.';
  return out;
}

// Returns the length of the name at the start of a text, as in "name: text"; 0 when there is no name.
inline size_t name_length(std::string_view text) {
  const size_t n = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.0123456789");
  return n != text.npos && text.substr(n).starts_with(": ") ? n : 0;
}

// Replaces the name at the start of the text. A text without a name stays as it is.
inline std::string renamed(std::string_view text, std::string_view name) {
  const size_t n = name_length(text);
  return fmt::format("{}{}", n ? name : "", text.substr(n));
}

// Returns f(). If f throws an Error of an op, the error is rethrown with `name` in place of the op's name.
template <class F>
auto with_name(std::string_view name, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (typeid(e) != typeid(Error) || name.empty()) throw;
    throw Error(renamed(e.what(), name));
  }
}

template <class... Args>
[[noreturn]] void fail(const char* op, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format("{}: {}", public_name(op), fmt::format(text, std::forward<Args>(args)...)));
}

// Throws `op: bad argument 'name' (expected …, got …)`.
[[noreturn]] inline void bad_argument(const char* op, const char* name, const std::string& expected,
                                      const std::string& got) {
  throw Error(fmt::format("{}: bad argument '{}' (expected {}, got {})", public_name(op), name, expected, got));
}

}  // namespace pg
