// Facts about the terminal of the process.
#pragma once

namespace pg {

// Whether text on this file descriptor may have colours: it is a terminal, TERM is set and not "dumb", and NO_COLOR
// (no-color.org) is not set.
bool has_colours(int fd);

// Columns of the terminal on standard output, or 80.
int terminal_width();

}  // namespace pg
