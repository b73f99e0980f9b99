#include "tensor/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace pg {

bool has_colours(int fd) {
  const char *forbidden = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return !(forbidden && *forbidden) && terminal && *terminal && std::strcmp(terminal, "dumb") != 0 && isatty(fd);
}

int terminal_width() {
  winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace pg
