#pragma once

namespace pg::repl {

// Runs argv[script], or standard input for -, in a sandboxed state. `arg` holds its arguments. Returns the exit code.
int run_sandboxed(int argc, char** argv, int script);

}  // namespace pg::repl
