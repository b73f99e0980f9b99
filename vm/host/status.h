// Errors at the border of the C API: every exception and Lua error becomes a status and the thread's last error.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tensor/error.h"
#include "vm/include/perigee.h"

namespace pg::host {

// A failure with a status of its own.
class Failure : public Error {
 public:
  Failure(perigee_status status, const std::string& text) : Error(text), status(status) {}
  const perigee_status status;
};

// An error that a script raised, with its traceback.
class ScriptFailure : public Failure {
 public:
  ScriptFailure(perigee_status status, const std::string& text, std::string traceback)
      : Failure(status, text), traceback(std::move(traceback)) {}
  const std::string traceback;
};

// Stores the exception that is being handled as the last error of this thread. Returns its status: `plain` for an Error
// that has none.
perigee_status note_exception(perigee_status plain) noexcept;

// Whether Lua or the library raised this error because memory ran out.
bool is_lack_of_memory(const std::string& message);

// Runs f. Returns PERIGEE_OK, or the status of what it threw.
template <class F>
perigee_status guarded(perigee_status plain, F&& f) noexcept {
  try {
    f();
    return PERIGEE_OK;
  } catch (...) {
    return note_exception(plain);
  }
}

// Throws unless `good`: `perigee_run: bad argument 'text' (expected …)`.
inline void need(bool good, const char* function, const char* argument, const char* expected = "not NULL") {
  if (!good)
    throw Failure(PERIGEE_BAD_ARGUMENT,
                  fmt::format("{}: bad argument '{}' (expected {})", function, argument, expected));
}

// Copies a struct that the host has filled. Members that its version does not have are zero.
template <class Config>
Config copy_config(const Config* given, const char* function) {
  Config config = {};
  if (!given) return config;
  need(given->size >= sizeof(uint32_t), function, "config", "a size, as PERIGEE_INIT sets it");
  const size_t size = std::min(size_t(given->size), sizeof config);
  std::memcpy(static_cast<void*>(&config), given, size);
  return config;
}

}  // namespace pg::host
