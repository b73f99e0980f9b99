// Errors of perigee: one exception type whose text is part of the API.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>

namespace pg {

// Carries the text after `file:line: `; the binding adds the script position.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
};

// Carries its own `file:line: ` in front of the text; the binding adds nothing.
class PositionedError : public Error {
 public:
  using Error::Error;
};

// Raised when memory for a tensor cannot be had, after the cache was flushed.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A value was asked of an array that has only a type: a tensor that is being traced.
class NoValue : public Error {
 public:
  NoValue() : Error("a traced tensor has no value to read") {}
};

// Raised at a poll point after a cancel request (Ctrl-C).
class Cancelled : public Error {
 public:
  Cancelled() : Error("interrupted") {}
};

// How long the name is that a text begins with, as in "name: text"; 0: it begins with none.
inline size_t name_length(std::string_view text) {
  const size_t n = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  return n != text.npos && text.substr(n).starts_with(": ") ? n : 0;
}

// The text with another name at its start.
inline std::string renamed(std::string_view text, std::string_view name) {
  const size_t n = name_length(text);
  return fmt::format("{}{}", n ? name : "", text.substr(n));
}

// What f() returns; the errors of ops in it get that name.
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
  throw Error(fmt::format("{}: {}", op, fmt::format(text, std::forward<Args>(args)...)));
}

// `op: bad argument 'name' (expected …, got …)`
[[noreturn]] inline void bad_argument(const char* op, const char* name, const std::string& expected,
                                      const std::string& got) {
  throw Error(fmt::format("{}: bad argument '{}' (expected {}, got {})", op, name, expected, got));
}

}  // namespace pg
