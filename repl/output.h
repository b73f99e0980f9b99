// The end of the program: lost output, and --time.
#pragma once

namespace pg::repl {

// From now on, when the process exits, even by os.exit in a script: reports output that could not be written, with exit
// code 1. A write to a standard output that nobody reads ends the program at once with the same report; one to another
// closed pipe, or beyond the limit of a file's size, fails. With `time` the exit also prints the processor and wall
// time since this call, and the peak memory.
void watch_output(bool time);

}  // namespace pg::repl
