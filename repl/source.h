#pragma once
#include <string>

namespace pg::repl {

// Whether there is a file at the path that can be read as a script. Otherwise reports why not.
bool check_source(const std::string& path);

}  // namespace pg::repl
