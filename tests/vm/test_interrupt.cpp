// Ctrl-C in scripts: runs the program, waits until the script reports that its work has started, and sends the signal.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

// Milliseconds without output until a program counts as hanging. Nothing else is timed.
constexpr int kPatience = 60000;

class Script {
 public:
  explicit Script(const std::string& text) {
    char folder[] = "/tmp/perigee-interrupt-XXXXXX";
    folder_ = mkdtemp(folder);
    const std::string path = folder_ + "/script.lua";
    std::ofstream(path) << "local pg = require 'perigee'\nlocal function begin() print('begun') io.flush() end\n"
                        << text;
    int in[2], out[2], err[2];
    REQUIRE(pipe(in) == 0);
    REQUIRE(pipe(out) == 0);
    REQUIRE(pipe(err) == 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) close(fd);
      execl(PERIGEE_PROGRAM, PERIGEE_PROGRAM, path.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    for (int fd : {in[0], out[1], err[1]}) close(fd);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
  }
  ~Script() {
    if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
    for (int fd : {in_, out_, err_}) close(fd);
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  void wait_for(const std::string& text) {
    while (output.find(text) == std::string::npos && read_more(out_, output)) {}
    REQUIRE(output.find(text) != std::string::npos);
  }
  void press() { kill(child_, SIGINT); }

  // Waits until the program has computed for a while since its report.
  void wait_for_work() {
    const double before = processor_time();
    pollfd ended = {out_, 0, 0};
    while (processor_time() < before + 0.1 && poll(&ended, 1, 1) == 0) {}
  }

  // Returns the exit code, or 256 plus the number of a signal.
  int finish() {
    while (read_more(out_, output)) {}
    while (read_more(err_, errors)) {}
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  }

  std::string output, errors;

 private:
  bool read_more(int fd, std::string& text) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, kPatience) == 0) kill(child_, SIGKILL);
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0) text.append(buffer, size_t(n));
    return n > 0;
  }

  double processor_time() const {
    clockid_t clock = {};
    timespec used = {};
    REQUIRE(clock_getcpuclockid(child_, &clock) == 0);
    REQUIRE(clock_gettime(clock, &used) == 0);
    return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
  }

  std::string folder_;
  pid_t child_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
};

// One signal must end the script with the message, the position, and exit code 130.
void ends(const std::string& text, const char* where = "script.lua:", bool works = true) {
  CAPTURE(text);
  Script script(text);
  script.wait_for("begun");
  if (works) script.wait_for_work();
  script.press();
  CHECK(script.finish() == 130);
  CAPTURE(script.errors);
  CHECK(script.errors.find("perigee: ") == 0);
  CHECK(script.errors.find("interrupted") != std::string::npos);
  CHECK(script.errors.find(where) != std::string::npos);
  CHECK(script.output == "begun\n");
}

}  // namespace

TEST_CASE("Ctrl-C ends a script that catches errors") {
  const char* const kTraceback = "stack traceback:\n\t";
  ends("begin() while true do pcall(function() return pg.ones(3) + 1 end) end print('on')", kTraceback);
  ends("local function step() for i = 1, 100 do local t = {} end end begin() while true do pcall(step) end",
       kTraceback);
  ends(
      "local function forever() while true do pg.ones(3) end end "
      "begin() while true do xpcall(forever, function() while true do end end) end",
      kTraceback);
  ends(
      "local function forever() while true do pg.ones(3) end end "
      "begin() while true do coroutine.wrap(function() pcall(forever) end)() end",
      kTraceback);
  ends(
      "local function forever() while true do pg.ones(3):sum():item() end end "
      "begin() for i = 1, 1000 do pcall(forever) end print('on')",
      kTraceback);
  ends(
      "local function deep(n) if n == 0 then begin() while true do pg.ones(3) end end pcall(deep, n - 1) deep(0) end "
      "deep(100)",
      kTraceback);
}

TEST_CASE("Ctrl-C ends compiled loops, those without an exit too, and reports their line") {
  ends("begin()\nwhile true do end", "script.lua:4: in main chunk");
  ends("local i = 0\nbegin()\nwhile true do i = i + 1 end", "script.lua:5: in main chunk");
  ends("local s = 0\nbegin()\nfor i = 1, 1e15 do s = s + i % 3 end", "script.lua:5: in main chunk");
  ends("local t = {0}\nbegin()\nwhile true do t[1] = t[1] + 1 end", "script.lua:5: in main chunk");
  ends("local function f(n) return n == 0 and 0 or f(n - 1) end\nbegin()\nwhile true do f(100) end",
       "script.lua:5: in main");
  ends("begin()\nwhile true do local t = {} for i = 1, 9 do t[i] = {i} end end", "script.lua:4: in main chunk");
  ends("begin()\nwhile true do ('x'):rep(3):find('y', 1, true) end", "script.lua:4: in main chunk");
  // loops whose guard LuaJIT has let jump to another trace
  ends("local n = 10\nbegin()\nfor k = 1, 1e9 do for j = 1, n do end if k > 1e5 then n = 1e15 end end",
       "script.lua:5: in main");
  ends(
      "local n = 10\nbegin()\nfor k = 1, 1e9 do local j = 0 while j < n do j = j + 1 end if k > 1e5 then n = 1e15 end "
      "end",
      "script.lua:5: in main");
  ends("local p = require 'jit.profile' p.start('l', function() end) p.stop() begin() while true do pg.ones(3) end",
       "script.lua:3: in main");  // without the profiler's handler, its signal would end the process
  ends("jit.off() begin() while true do end", "script.lua:3: in main chunk");
  ends("local n = 0 local function step() n = n + 1 end begin()\nwhile true do pcall(step) end", "script.lua:4");
}

TEST_CASE("Ctrl-C ends control flow even where errors are caught") {
  const std::string again = "local function again(i) return nil, i * 1 end ";
  ends(again + "begin() pg.while_loop(function(i) return i:lt(10) end, again, {1})");
  ends(again +
       "local f = pg.jit(function(s) return select(2, pg.while_loop(function(i) return i:sum():lt(10) end, again, "
       "{s}))[1] end) f(pg.full({3}, 5)) begin() f(pg.zeros(3))");
  ends("begin() pg.loop(1e9, function(_, s) return pg.loop(1e9, function(_, u) return u + 1 end, s) end, 0)");
  ends(
      "local s = pg.ones(1):attach_grad() begin() pg.record(function() "
      "return pg.loop(1e12, function(_, u) return u * 0.5 end, s, {checkpoint = 1000000}) end)");
  ends(again +
       "local count = pg.zeros(1) begin() print(pcall(function() pg.while_loop(function(i) return i:lt(10) end, "
       "function(i) count:add_(1) return again(i) end, {1}) end))");
}

TEST_CASE("Ctrl-C ends kernels") {
  ends("local x = pg.zeros(1):expand(2 ^ 40) begin() x:sum() print('on')");
  ends("local x = pg.zeros(1, 1):expand(2 ^ 24, 2 ^ 16) begin() x:sum{dim = 2} print('on')");
  ends("local f = pg.jit(function(x) return x:expand(2 ^ 40):sum() end) begin() f(pg.zeros(1)) print('on')");
  ends("local x = pg.rand(3000, 3000) begin() while true do x:matmul(x) end");
  ends("local x = pg.rand(2000, 2000):to('float64') begin() while true do x:matmul(x) end");
  ends("local x = pg.ones(4000, 4000, {dtype = 'int32'}) begin() x:matmul(x) print('on')");
  ends("local x = pg.eye(3000) begin() while true do pg.linalg.inv(x) end");
  ends("local x = pg.eye(3000, {dtype = 'float64'}) begin() while true do pg.linalg.cholesky(x) end");
  ends("local x = pg.ones(2 ^ 25, 1) begin() while true do x:sequence_reverse() end");
  ends("local x = pg.rand(2e6) begin() while true do x:sort() end");
}

TEST_CASE("Ctrl-C ends the writing and reading of large files") {
  const std::string large = "local path = arg[0]:gsub('[^/]*$', 'x') local x = pg.rand(2 ^ 26) ";
  ends(large + "begin() while true do pg.save(path .. '.npy', x) end");
  ends(large + "begin() while true do pg.save(path .. '.safetensors', {x = x:reshape{2, -1}:t()}) end");
  ends(large + "pg.save(path .. '.npy', x) begin() while true do pg.load(path .. '.npy') end");
}

TEST_CASE("Ctrl-C ends scripts that wait or cannot be stopped") {
  ends("begin() io.read() print('on')", "script.lua:", false);
  ends("local s = ('a'):rep(30000) begin() s:find(('.-'):rep(31) .. 'b')", "interrupted");
}

TEST_CASE("a second Ctrl-C ends a script at once") {
  Script script("local s = ('a'):rep(30000) begin() s:find(('.-'):rep(31) .. 'b')");
  script.wait_for("begun");
  script.press();
  script.press();
  CHECK(script.finish() == 130);
  CHECK(script.errors.find("interrupted") != std::string::npos);
}
