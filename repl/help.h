// Texts that are made of the tables of options: -h, the manual page and the completions of shells.
#pragma once
#include <string>
#include <string_view>

#include "repl/options.h"

namespace pg::repl {

std::string help_text(const CommandRow& command);

// The text of --generate: "man", "bash" or "zsh".
std::string generated_text(std::string_view kind);

}  // namespace pg::repl
