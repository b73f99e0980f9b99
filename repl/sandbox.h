#pragma once
#include "repl/options.h"

namespace pg::repl {

// Runs the script of the command line, or standard input for -, in a sandboxed state. `arg` holds its arguments.
// Returns the exit code.
int run_sandboxed(int argc, char** argv, const CommandLine& line);

}  // namespace pg::repl
