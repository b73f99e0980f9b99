// The history of earlier sessions: a text file with one line per entry, in which "\x1e" separates the lines of an
// entry.
#pragma once
#include <string>
#include <vector>

namespace pg::repl {

class HistoryFile {
 public:
  // Uses $XDG_STATE_HOME/perigee/history, else ~/.local/state/perigee/history. Without either, or if the file cannot be
  // written, it stores nothing.
  HistoryFile();

  // Returns the entries, oldest first. A text that occurs several times is returned once, at its latest position.
  // Rewrites a file that has become long.
  std::vector<std::string> load();
  void append(std::string entry);

 private:
  void rewrite(const std::vector<std::string>& lines);

  std::string path_;
};

}  // namespace pg::repl
