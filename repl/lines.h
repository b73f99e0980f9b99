// Where the prompt reads its lines: the line editor on a terminal, plain reading elsewhere.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pg::repl {

enum class Read { kLine, kEnd, kInterrupted };

class LineReader {
 public:
  virtual ~LineReader() = default;
  // Reads a line without its end; kInterrupted when Ctrl-C came first.
  virtual Read read(const char* prompt, std::string& line) = 0;
  // Adds an entered line to the history.
  virtual void remember(const std::string&) {}
};

// Completions of the text before the cursor: what each would put behind it, and where the word begins.
struct Completions {
  size_t word = 0;                 // offset of the word in the text
  std::vector<std::string> names;  // sorted; all begin with the word
};
using Completer = std::function<Completions(const std::string& text)>;

std::unique_ptr<LineReader> make_plain_reader();
std::unique_ptr<LineReader> make_editor(Completer completer);  // null where the editor's library cannot be loaded

// The line editor where both ends are a terminal that can do it, plain reading elsewhere.
std::unique_ptr<LineReader> make_line_reader(Completer completer);

}  // namespace pg::repl
