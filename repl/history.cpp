#include "repl/history.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unordered_set>

namespace pg::repl {
namespace {

constexpr size_t kEntries = 1000;
constexpr char kBreak = '\x1e';  // replaces the newlines of an entry in the file

std::filesystem::path state_folder() {
  const char* xdg = std::getenv("XDG_STATE_HOME");
  if (xdg && *xdg == '/') return xdg;
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return std::filesystem::path(home) / ".local/state";
  return {};
}

// Writes the text with one call if possible, so that concurrent sessions do not mix their lines.
void write_all(int file, const std::string& text) {
  if (file < 0) return;
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(file, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += size_t(n);
  }
  close(file);
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace

HistoryFile::HistoryFile() {
  const std::filesystem::path folder = state_folder();
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder / "perigee", error);
  if (!error) path_ = folder / "perigee" / "history";
}

std::vector<std::string> HistoryFile::load() {
  if (path_.empty()) return {};
  const std::vector<std::string> lines = read_lines(path_);
  std::vector<std::string> entries;
  std::unordered_set<std::string> seen;
  for (size_t i = lines.size(); i-- > 0 && entries.size() < kEntries;)
    if (seen.insert(lines[i]).second) entries.push_back(lines[i]);
  std::reverse(entries.begin(), entries.end());
  if (lines.size() > 2 * kEntries) rewrite(entries);
  for (std::string& entry : entries) std::replace(entry.begin(), entry.end(), kBreak, '\n');
  return entries;
}

void HistoryFile::rewrite(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string fresh = path_ + ".new";
  write_all(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), text);
  std::rename(fresh.c_str(), path_.c_str());
}

void HistoryFile::append(std::string entry) {
  if (path_.empty()) return;
  std::replace(entry.begin(), entry.end(), '\n', kBreak);
  write_all(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), entry + "\n");
}

}  // namespace pg::repl
