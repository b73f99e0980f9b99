#include "repl/lines.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "repl/interrupt.h"

namespace pg::repl {
namespace {

// Uses the same buffer as io.read, so that a script may read lines between two lines of the prompt.
class PlainReader final : public LineReader {
 public:
  Read read(const char* prompt, std::string& line) override {
    std::fputs(prompt, stdout);
    std::fflush(stdout);
    line.clear();
    if (isatty(STDIN_FILENO) && !wait_for_input()) return Read::kInterrupted;  // a terminal delivers whole lines
    for (int c; (c = std::getc(stdin)) != '\n'; line += char(c)) {
      if (c != EOF) continue;
      const bool signal = std::ferror(stdin) && errno == EINTR;
      std::clearerr(stdin);
      if (signal) return Read::kInterrupted;
      return line.empty() ? Read::kEnd : Read::kLine;
    }
    return Read::kLine;
  }
};

bool can_edit() {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return false;
  const char* terminal = std::getenv("TERM");
  return terminal && *terminal && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

std::unique_ptr<LineReader> make_plain_reader() { return std::make_unique<PlainReader>(); }

std::unique_ptr<LineReader> make_line_reader(Assistant assistant) {
  std::unique_ptr<LineReader> reader;
  if (can_edit()) reader = make_editor(std::move(assistant));
  return reader ? std::move(reader) : make_plain_reader();
}

}  // namespace pg::repl
