// The history of earlier sessions: a text file with one line per entry.
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
  void append(const std::string& line);

 private:
  std::string path_;
};

}  // namespace pg::repl
