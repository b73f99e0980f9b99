#include "repl/output.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace pg::repl {
namespace {

bool prints_time = false;
timespec started;

// The functions below are called in the handler of a signal, or when the process exits.

void write_line(const char* line, int size, size_t capacity) {
  if (write(STDERR_FILENO, line, std::min(size_t(size), capacity - 1)) < 0) return;  // nobody is left to tell
}

void report_lost(const char* why) {
  char line[160];
  write_line(line,
             std::snprintf(line, sizeof line, "perigee: cannot write to standard output: %s; output was lost\n", why),
             sizeof line);
}

double seconds(const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; }

void report_time() {
  if (!prints_time) return;
  timespec now;
  rusage used;
  clock_gettime(CLOCK_MONOTONIC, &now);
  getrusage(RUSAGE_SELF, &used);
  const double wall = double(now.tv_sec - started.tv_sec) + double(now.tv_nsec - started.tv_nsec) * 1e-9;
  char line[160];
  write_line(line,
             std::snprintf(line, sizeof line, "perigee: time: %.3f s wall, %.3f s processor, %.1f MB peak memory\n",
                           wall, seconds(used.ru_utime) + seconds(used.ru_stime), double(used.ru_maxrss) / 1024),
             sizeof line);
}

void end_output() {
  errno = 0;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout);
  if (lost) report_lost(errno ? std::strerror(errno) : "a write failed");
  report_time();
  if (lost) _exit(1);
}

// The handler of SIGPIPE.
void end_at_closed_pipe(int) {
  const int error = errno;
  pollfd output = {STDOUT_FILENO, 0, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR)) {
    report_lost("Broken pipe");
    report_time();
    _exit(1);
  }
  errno = error;
}

// Unlike an ignored signal, a handler is not inherited by the commands of io.popen.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_output(bool time) {
  prints_time = time;
  clock_gettime(CLOCK_MONOTONIC, &started);
  handle(SIGPIPE, end_at_closed_pipe);
  handle(SIGXFSZ, [](int) {});  // a write beyond the limit of a file's size fails
  std::atexit(end_output);
}

}  // namespace pg::repl
