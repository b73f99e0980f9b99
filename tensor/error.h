// Errors of perigee: one exception type whose text is part of the API.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

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
