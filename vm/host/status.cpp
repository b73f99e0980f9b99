#include "vm/host/status.h"

#include <cctype>
#include <exception>
#include <new>
#include <string_view>

#include "tensor/thread_end.h"

namespace pg::host {
namespace {

thread_local perigee_error last = {PERIGEE_OK, "", "", "", 0};

// What it points to.
struct Texts {
  std::string message, traceback, chunk;
};

// Finds the position in front of a message: `chunk:line: text`. A chunk's name may look like a position itself, so the
// longest one that the traceback names is meant, else the first. Returns 0 if there is none.
int position_in(std::string_view message, std::string_view traceback, std::string& chunk) {
  const std::string places = "\n" + std::string(traceback);
  int line = 0;
  for (size_t colon = message.find(':'); colon != std::string_view::npos; colon = message.find(':', colon + 1)) {
    size_t end = colon + 1;
    while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end]))) ++end;
    if (end == colon + 1 || message.substr(end, 2) != ": ") continue;
    if (line && places.find("\n" + std::string(message.substr(0, end + 1))) == std::string::npos) continue;
    chunk = message.substr(0, colon);
    line = std::atoi(message.data() + colon + 1);
  }
  return line;
}

void fill(perigee_status status, std::string_view message, std::string_view traceback) {
  Texts& texts = per_thread<Texts, Texts>();
  texts.message = message;
  texts.traceback = traceback;
  texts.chunk.clear();
  const int line =
      traceback.empty() && status != PERIGEE_SCRIPT_ERROR ? 0 : position_in(message, traceback, texts.chunk);
  last = {status, texts.message.c_str(), texts.traceback.c_str(), texts.chunk.c_str(), line};
}

perigee_status store(perigee_status status, std::string_view message, std::string_view traceback = {}) noexcept {
  try {
    fill(status, message, traceback);
  } catch (...) {
    last = {status, "out of memory while an error was stored", "", "", 0};
  }
  return status;
}

}  // namespace

// Coroutines and the library add places: `chunk:line: ` in front, ` (in the body of foreach)` and the like at the end.
bool is_lack_of_memory(const std::string& message) {
  constexpr std::string_view kOfLua = "not enough memory", kOfLibrary = "out of memory";
  const std::string_view text = message;
  if (const size_t at = text.find(kOfLua); at != text.npos) {
    const std::string_view before = text.substr(0, at), after = text.substr(at + kOfLua.size());
    if ((before.empty() || before.ends_with(": ")) && (after.empty() || after.starts_with(" (in "))) return true;
  }
  const size_t at = text.find(kOfLibrary);
  return at != text.npos && (at == 0 || text[at - 1] == ' ');
}

perigee_status note_exception(perigee_status plain) noexcept {
  try {
    throw;
  } catch (const ScriptFailure& e) {
    return store(e.status, e.what(), e.traceback);
  } catch (const Failure& e) {
    return store(e.status, e.what());
  } catch (const OutOfMemory& e) {
    return store(PERIGEE_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return store(PERIGEE_OUT_OF_MEMORY, "out of memory");
  } catch (const Cancelled& e) {
    return store(PERIGEE_CANCELLED, e.what());
  } catch (const Error& e) {
    return store(plain, e.what());
  } catch (const std::exception& e) {
    return store(PERIGEE_INTERNAL, e.what());
  } catch (...) {
    return store(PERIGEE_INTERNAL, "an exception that perigee does not know");
  }
}

}  // namespace pg::host

const char* perigee_version(void) { return PERIGEE_VERSION; }

const perigee_error* perigee_last_error(void) { return &pg::host::last; }

const char* perigee_status_name(perigee_status status) {
  constexpr const char* kNames[] = {"PERIGEE_OK",
                                    "PERIGEE_BAD_ARGUMENT",
                                    "PERIGEE_SCRIPT_ERROR",
                                    "PERIGEE_OUT_OF_MEMORY",
                                    "PERIGEE_BUDGET_EXCEEDED",
                                    "PERIGEE_CANCELLED",
                                    "PERIGEE_BAD_FILE",
                                    "PERIGEE_NO_DEVICE",
                                    "PERIGEE_NOT_FOUND",
                                    "PERIGEE_UNSUPPORTED",
                                    "PERIGEE_INTERNAL"};
  static_assert(std::size(kNames) == size_t(PERIGEE_INTERNAL) + 1);
  return status >= 0 && size_t(status) < std::size(kNames) ? kNames[status] : "unknown status";
}
