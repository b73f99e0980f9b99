// Readers of the prompt's lines: a line editor on a terminal, else plain reading.
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
  // Reads a line without its newline, or several if they were pasted or come from the history. Returns kInterrupted if
  // Ctrl-C was pressed before its end.
  virtual Read read(const char* prompt, std::string& line) = 0;
  // Adds an entry, which may have several lines, to the history.
  virtual void remember(const std::string&) {}
};

// Completions of the word before the cursor.
struct Completions {
  size_t word = 0;                 // offset of the word in the text
  std::vector<std::string> names;  // sorted names that begin with the word
};

// What an editor asks about the text before the cursor.
struct Assistant {
  std::function<Completions(const std::string& text)> complete;
  std::function<std::string(const std::string& text)> hint;  // a line to show beside it, or an empty text
};

std::unique_ptr<LineReader> make_plain_reader();
std::unique_ptr<LineReader> make_editor(Assistant assistant);  // null if libedit cannot be loaded

// Returns the line editor if standard input and output are a capable terminal, else the plain reader.
std::unique_ptr<LineReader> make_line_reader(Assistant assistant);

}  // namespace pg::repl
