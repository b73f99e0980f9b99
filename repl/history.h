// The lines of earlier sessions: a text file, one line an entry.
#pragma once
#include <string>
#include <vector>

namespace pg::repl {

class HistoryFile {
 public:
  // $XDG_STATE_HOME/perigee/history, else ~/.local/state/perigee/history; keeps nothing where neither is known or the
  // file cannot be written.
  HistoryFile();

  // The entries, oldest first, each text once at its latest place; shortens a file that has grown long.
  std::vector<std::string> load();
  void append(const std::string& line);

 private:
  std::string path_;
};

}  // namespace pg::repl
