// The source line of an error.
#pragma once
#include <string>

namespace pg::repl {

// Returns the source line that a message "file:line: …" names, indented, and a line with a caret under the word that
// the message is about, each after a newline. For the chunk of the prompt's entries, "stdin", the source is `entry`;
// since functions of earlier entries have lines of the same numbers, the word must occur there. Returns an empty text
// if there is nothing to show.
std::string excerpt(const std::string& message, const std::string& entry);

}  // namespace pg::repl
