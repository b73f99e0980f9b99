// Settings by environment variables, for the program, the module and tests.
#pragma once
#include <atomic>
#include <cstdlib>

namespace pg {

// Set once a host has made a runtime: variables hold no settings for its process.
inline std::atomic<bool> settings_ignored{false};
inline bool settings_kept = false;  // for hosts that test the library

// Returns the text of a variable, or null if it is not set or holds no setting.
inline const char* setting(const char* name) { return settings_ignored ? nullptr : std::getenv(name); }

}  // namespace pg
