#include "repl/source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "repl/options.h"
#include "repl/script.h"
#include "tensor/op.h"

namespace pg::repl {
namespace {

// A word that is no file may be a misspelt sub-command.
std::string command_hint(const std::string& path) {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_rows())
    if (row.place != kScript) names.push_back(row.name);
  const std::string near = suggest(path, names);
  return near.empty() ? "" : "; did you mean the sub-command '" + near + "'?";
}

}  // namespace

bool check_source(const std::string& path) {
  struct stat info;
  int error = 0;
  if (stat(path.c_str(), &info) || access(path.c_str(), R_OK))
    error = errno;
  else if (S_ISDIR(info.st_mode))
    error = EISDIR;
  if (!error) return true;
  report(("cannot open '" + path + "': " + std::strerror(error) + (error == ENOENT ? command_hint(path) : "")).c_str());
  return false;
}

}  // namespace pg::repl
