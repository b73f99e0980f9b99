// Settings by environment variables, for the program, the module and tests.
#pragma once
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pg {

// Set once a host has made a runtime: variables hold no settings for its process.
inline std::atomic<bool> settings_ignored{false};
inline bool settings_kept = false;  // for hosts that test the library

// Returns the text of a variable, or null if it is not set or holds no setting.
inline const char* setting(const char* name) { return settings_ignored ? nullptr : std::getenv(name); }

// Settings that are on or off.
inline constexpr const char* kSwitches[] = {"PERIGEE_NATIVE", "PERIGEE_GUARD", "PERIGEE_VERIFY_PASSES",
                                            "PERIGEE_VERIFY_PLANS", "PERIGEE_CUDA_SYNC"};

// Whether the variable is 1; `fallback` where it is not set. check_settings refuses all but 0 and 1.
inline bool switched_on(const char* name, bool fallback = false) {
  const char* text = setting(name);
  return text && *text ? *text != '0' : fallback;
}

// Returns "NAME: expected …, got …" for a variable that is set.
inline std::string wrong_setting(const char* name, std::string_view expected) {
  return std::string(name).append(": expected ").append(expected).append(", got \"").append(setting(name)).append("\"");
}

// Throws Error for a variable with a value that it cannot have, also if it is used late. What names of passes there are
// is checked by check_pass_settings.
void check_settings();

}  // namespace pg
