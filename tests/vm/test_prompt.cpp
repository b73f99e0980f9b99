// Runs the program on a pseudo terminal and types at its prompt. It waits for each prompt, because earlier input is
// processed by the rules of the terminal.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Milliseconds without output until a program counts as hanging. Nothing else is timed.
constexpr int kPatience = 60000;

// The program behind a pseudo terminal, with its own home folder. Keeps all output.
class Session {
 public:
  explicit Session(const char* terminal = "xterm", const char* code = nullptr)
      : edits_(terminal != std::string("dumb")) {
    char home[] = "/tmp/perigee-prompt-XXXXXX";
    home_ = mkdtemp(home);
    winsize size = {40, 200, 0, 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      setenv("HOME", home_.c_str(), 1);
      setenv("XDG_STATE_HOME", (home_ + "/state").c_str(), 1);
      setenv("TERM", terminal, 1);
      if (chdir(home_.c_str()) != 0) _exit(126);
      execl(PERIGEE_PROGRAM, PERIGEE_PROGRAM, code ? "-e" : nullptr, code, static_cast<char*>(nullptr));
      _exit(127);
    }
  }
  ~Session() {
    if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
    close(terminal_);
    std::error_code error;
    std::filesystem::remove_all(home_, error);
  }

  void type(const std::string& text) { REQUIRE(write(terminal_, text.data(), text.size()) == ssize_t(text.size())); }

  // Waits until the text appears after the text of the previous wait. Typed text is echoed, so wait for text that it
  // does not contain.
  bool wait(const std::string& text) {
    for (;;) {
      if (const size_t at = seen_.find(text, from_); at != std::string::npos) {
        from_ = at + text.size();
        return true;
      }
      if (!read_more()) break;
    }
    MESSAGE("no '" << text << "' in: " << seen_.substr(from_));
    return false;
  }

  // Waits until a line can be typed. libedit switches the terminal's mode only after it has shown the prompt; the
  // terminal itself would handle a key before that.
  bool wait_for_prompt() {
    if (!wait("> ")) return false;
    termios settings = {};
    for (int i = 0; edits_ && i < kPatience; ++i) {
      if (tcgetattr(terminal_, &settings) != 0 || !(settings.c_lflag & ICANON)) break;
      poll(nullptr, 0, 1);
    }
    return true;
  }

  // Types Ctrl-D at the prompt. Returns the exit code.
  int leave() {
    type("\004");
    return end();
  }
  // Waits for the end of the program. Returns its exit code.
  int end() {
    while (read_more()) {}
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  }

  const std::string& home() const { return home_; }
  const std::string& seen() const { return seen_; }

  // False on a machine without pseudo terminals, such as a bare chroot. The test is then skipped.
  bool started() const {
    if (child_ < 0) MESSAGE("skipped: no pseudo terminal can be had here");
    return child_ >= 0;
  }
  // The same, after the first prompt.
  bool ready() {
    if (started()) REQUIRE(wait_for_prompt());
    return child_ >= 0;
  }

  // Types a line that prints nothing.
  void accepts(const char* line) {
    type(line);
    REQUIRE(wait_for_prompt());
  }
  // Types a line and waits for its output.
  void answers(const char* line, const char* answer) {
    type(line);
    REQUIRE(wait(answer));
    REQUIRE(wait_for_prompt());
  }

 private:
  // Waits for output. Returns false when the program has ended. Kills a program that writes nothing for too long.
  bool read_more() {
    pollfd ready = {terminal_, POLLIN, 0};
    if (poll(&ready, 1, kPatience) == 0) kill(child_, SIGKILL);
    char buffer[4096];
    const ssize_t n = read(terminal_, buffer, sizeof buffer);
    if (n > 0) seen_.append(buffer, size_t(n));
    return n > 0;
  }

  bool edits_;
  std::string home_, seen_;
  int terminal_ = -1;
  pid_t child_ = -1;
  size_t from_ = 0;
};

void check_conversation(Session& s) {
  REQUIRE(s.wait("Ctrl-D leaves."));
  REQUIRE(s.wait_for_prompt());
  s.answers("20 + 22\n", "42\r");
  s.type("x = pg.tensor{{1, 2},\n");
  REQUIRE(s.wait_for_prompt());
  s.accepts("{3, 4}}\n");
  s.type("x\n");
  REQUIRE(s.wait("{{1, 2},"));
  REQUIRE(s.wait("[float32 2x2 cpu]"));
  REQUIRE(s.wait_for_prompt());
  s.answers("error('on' .. ' purpose')\n", "on purpose");
  s.answers("_.shape\n", "{2, 2}\r");
}

// Ctrl-C must end the loop, and the prompt must work again.
void interrupt_loop(Session& s, const std::string& loop, int number) {
  const std::string mark = std::to_string(number);
  s.type("io.write('started', " + mark + ", ' ') io.flush() " + loop + "\n");
  REQUIRE(s.wait("started" + mark));
  s.answers("\003", "interrupted");
  s.type("'alive' .. " + mark + "\n");
  REQUIRE(s.wait("alive" + mark));
  REQUIRE(s.wait_for_prompt());
}

}  // namespace

TEST_CASE("the prompt works on a terminal") {
  Session s;
  if (!s.started()) return;
  check_conversation(s);
  CHECK(s.leave() == 0);
  std::ifstream history(s.home() + "/state/perigee/history");
  std::string line;
  REQUIRE(std::getline(history, line));
  CHECK(line == "20 + 22");
}

TEST_CASE("the prompt works on a terminal without editing") {
  Session s("dumb");
  if (!s.started()) return;
  check_conversation(s);
  interrupt_loop(s, "while true do end", 1);
  CHECK(s.leave() == 0);
}

TEST_CASE("Ctrl-C returns to the prompt") {
  Session s;
  if (!s.ready()) return;
  interrupt_loop(s, "while true do end", 1);
  interrupt_loop(s, "local x = pg.ones(100) while true do x = x + 1 end", 2);
  interrupt_loop(s, "while true do pcall(function() end) end", 3);
  interrupt_loop(s, "while true do pcall(function() return pg.ones(3) + 1 end) end", 4);
  interrupt_loop(s, "while true do xpcall(pg.ones, function() while true do end end, 3) end", 5);
  interrupt_loop(s, "pg.zeros(1):expand(2 ^ 40):sum()", 6);
  interrupt_loop(s, "local x = pg.rand(2000, 2000) while true do x:matmul(x) end", 7);
  interrupt_loop(s, "local x = pg.rand(2e6) while true do x:sort() end", 8);
  interrupt_loop(s, "while true do pcall(pg.record, function() pg.pause(function() return pg.ones(3) + 1 end) end) end",
                 9);
  interrupt_loop(s, "local n = 0 for i = 1, 1e15 do n = n + i % 3 end", 10);
  interrupt_loop(s, "local t = {} while true do for i = 1, 100 do t[i] = {i} end end", 11);
  interrupt_loop(s, "local function f(n) return n > 0 and f(n - 1) or 0 end while true do f(99) end", 12);
  s.accepts("local p = require 'jit.profile' p.start('l', function() end) p.stop()\n");
  interrupt_loop(s, "for i = 1, 1e15 do end", 13);
  s.answers("tostring(pg.is_recording()) .. tostring(pg.is_training())\n", "falsefalse");
  s.answers("((jit.status() or jit.arch ~= 'x64') and 1 or 0) + 12300\n", "12301");
  s.type("for i = 1, 10 do\n");
  REQUIRE(s.wait_for_prompt());
  s.answers("\003", "^C");
  s.answers("'wh' .. 'ole'\n", "whole");
  CHECK(s.leave() == 0);
}

TEST_CASE("Ctrl-C during a blocked write loses output at most") {
  Session s;
  if (!s.ready()) return;
  for (const int number : {1, 2, 3}) {
    const std::string mark = std::to_string(number);
    s.type("io.write('started', " + mark + ") io.flush() while true do io.write('x') end\n");
    REQUIRE(s.wait("started" + mark));
    poll(nullptr, 0, 100);  // most likely the terminal is full by now
    s.answers("\003", "interrupted");
  }
  s.answers("'alive' .. 4\n", "alive4");
  CHECK(s.leave() == 0);

  Session script("xterm", "io.write('started') io.flush() while true do io.write('x') end");
  REQUIRE(script.wait("started"));
  poll(nullptr, 0, 100);
  script.type("\003");
  CHECK(script.wait("(command line):1: interrupted"));
  CHECK(script.end() == 130);
}

TEST_CASE("a local of a line is a local of the session") {
  Session s;
  if (!s.ready()) return;
  s.accepts("local a, b = 20, 2 -- local c = 3\n");
  s.answers("a + b + 100\n", "122\r");
  s.accepts("local function f(n) a = a + (n or 1) return a end\n");
  s.answers("f() + 200\n", "221\r");
  s.answers("a + 300\n", "321\r");  // the variable that f has captured
  s.accepts("a = 30\n");
  s.answers("f(2) + 400\n", "432\r");
  s.accepts("local a = 'new ' .. a\n");  // hides the variable of f
  s.answers("a .. f()\n", "new 3233\r");
  s.answers("tostring(rawget(_G, 'a')) .. tostring(c) .. 'G'\n", "nilnilG");
  s.accepts("do local hidden = 1 end for i = 1, 2 do local hidden = i end\n");
  s.answers("tostring(hidden) .. '!'\n", "nil!");
  s.accepts("local text = [[\n");
  s.accepts("local d = 1]] local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end\n");
  s.answers("#text + fib(20) .. tostring(d)\n", "6776nil");
  s.answers("local e = 5; return e + 1000\n", "1005\r");
  s.answers("e + 2000\n", "2005\r");
  s.accepts("local session_value = {inner = 70}\n");
  s.answers("session_v\t.inn\t + 7\n", "77\r");
  s.answers("local x = a.b.c\n", "attempt to index field 'b'");
  s.answers("local nothing; nothing.x = 1\n", "attempt to index local 'nothing'");
  s.answers("nothing.y = 1\n", "stdin:1: attempt to index local 'nothing' (a nil value)");
  s.answers("nothing.y\n", "stdin:1: attempt to index local 'nothing'");
  s.answers("local early = 3000 local function get() return early end error('bo' .. 'om') local late = 1\n", "boom");
  s.answers("early + get() + (late or 0)\n", "6000\r");
  s.answers(  // an interrupt sets such a hook, which ends whatever Lua code would run in the message handler
      "local kept, none = 4000 debug.sethook(function() if debug.getinfo(2, 'S').short_src ~= 'stdin' then "
      "error('hooked') end end, '', 1) error('lo' .. 'st')\n",
      "stdin:1: lost");
  s.answers("debug.sethook() return kept + 1 .. tostring(none)\n", "4001nil");
  std::string sum = "0", many;
  for (int i = 1; i <= 61; ++i) {
    const std::string name = "v" + std::to_string(i);
    sum += "+" + name, many += "local " + name + " = " + std::to_string(i) + " ";
  }
  s.accepts((many + "\n").c_str());
  s.answers(("return " + sum + "\n").c_str(), "an entry can use at most 60");
  s.answers("v1 + v61\n", "62\r");
  s.accepts("goto over; local skipped = 1 ::over::\n");  // runs, but no statement can follow such a label
  s.answers("tostring(skipped) .. '?'\n", "nil?");
  CHECK(s.leave() == 0);
}

TEST_CASE("commands that measure, and large results") {
  Session s;
  if (!s.ready()) return;
  s.answers(":time 20 + 1\n", "processor time");
  s.answers("_ + 100\n", "121\r");
  s.answers(":bench pg.ones(2) vs pg.ones(3)\n", "times as fast");
  s.answers(":bench pg.ones(-1)\n", "ones: bad argument");
  s.answers(":profile pg.ones(2) + 1\n", "profile of");
  s.answers(":mem\n", "kept for reuse");
  s.answers(":mem x = pg.ones(1000)\n", "+1, 4.0 kB");
  s.accepts("net = pg.nn.Dense(2, {in_units = 1}):initialize():hybridize() x = pg.ones(3, 1);\n");
  s.accepts(":trace on\n");
  s.answers("net(x);\n", "-- Dense: traced");
  s.accepts(":tr off\n");
  s.answers(":trace pg.ones(2):exp()\n", "exp(x = float32 2 {1, 1})");
  s.answers("pg.ones(1000, 1000)\n", "cpu]");  // result 4, of which only the last value, _, keeps the memory
  s.answers("_4.shape\n", "{1000, 1000}\r");
  s.accepts("collectgarbage() collectgarbage();\n");
  s.answers("tostring(_4) .. '!'\n", "nil!");
  s.answers("_5\n", "{1000, 1000}\r");
  CHECK(s.leave() == 0);
}

TEST_CASE("exit and quit leave the prompt, unless they are variables") {
  Session s;
  if (!s.ready()) return;
  s.accepts("local exit = 5 quit = 6\n");
  s.answers("exit + 10\n", "15\r");
  s.answers("exit\n", "5\r");
  s.answers("quit\n", "6\r");
  s.accepts("quit = nil\n");
  s.type("quit()\n");
  CHECK(s.end() == 0);
  Session other;
  REQUIRE(other.wait_for_prompt());
  other.type("exit\n");
  CHECK(other.end() == 0);
}

// The blocks of README in Lua.
std::vector<std::string> snippets() {
  std::ifstream file(PERIGEE_SOURCE_DIR "/README.md");
  std::vector<std::string> out;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    const bool fence = line.starts_with("```");
    if (fence && (inside = line == "```lua")) out.emplace_back();
    if (!fence && inside) out.back() += line + "\n";
  }
  return out;
}

TEST_CASE("README can be pasted: each block as a whole, and line by line") {
  for (const bool whole : {true, false}) {
    Session s;
    if (!s.ready()) return;
    const std::vector<std::string> blocks = snippets();
    REQUIRE(blocks.size() >= 3);
    for (const std::string& block : blocks) {
      std::istringstream lines(block);
      if (whole) s.accepts(("\033[200~" + block + "\033[201~").c_str());
      for (std::string line; !whole && std::getline(lines, line);) s.accepts((line + "\n").c_str());
    }
    s.answers("#outs + s:numel() + 500\n", "523\r");
    for (const char* trouble : {"traceback", "attempt to", " near "}) {
      INFO(s.seen());
      CHECK(s.seen().find(trouble) == std::string::npos);
    }
    CHECK(s.leave() == 0);
  }
}

TEST_CASE("a pasted block is one chunk, and an entry of the history as a whole") {
  Session s;
  if (!s.ready()) return;
  s.answers(
      "\033[200~local p = {5}\nlocal q = p[1]\n  + 1\nfor i = 1, 2 do\n  q = q + i\nend\nprint(q + 4000)\n\033[201~",
      "4009\r");
  s.answers("q + 5000\n", "5009\r");
  s.answers("\033[A\033[A\n", "4009\r");              // two entries back
  s.accepts("\033[200~p = 1\np = p + \033[201~1\n");  // its last line can be edited
  s.answers("p + 6000\n", "6002\r");
  s.answers("\033[200~local r = 9000\nfor i = 1, 2 do r = r + i end\nr + 5\n\033[201~", "9008\r");
  s.answers("\033[200~local r = 9100\nr\n\033[201~", "9100\r");
  s.answers("1 + \033[200~7000\033[201~\n", "7001\r");
  s.type("\033[200~a paste without its end\n");
  s.answers("\003", "^C");
  s.type("for i = 1, 2 do\n");
  REQUIRE(s.wait_for_prompt());
  s.answers("print(i * 8001) end\n", "16002\r");
  s.answers("\033[A\n", "16002\r");
  CHECK(s.leave() == 0);
  std::ifstream file(s.home() + "/state/perigee/history");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(text.find("\np = 1\x1ep = p + 1\n") != text.npos);
  CHECK(text.find("for i = 1, 2 do\x1eprint(i * 8001) end\n") != text.npos);
}

TEST_CASE("Tab completes names") {
  Session s;
  if (!s.ready()) return;
  s.accepts("value_of_mine = 7\n");
  s.answers("value_o\t + 1\n", "8\r");
  s.accepts("y = pg.tens\t{5}\n");
  s.answers("y:nume\t() + 98\n", "99\r");
  s.type("y.\t");
  REQUIRE(s.wait("requires_grad"));
  s.answers("\003", "^C");
  s.answers("#tostring(pg.nn.Dens\t) + 100\n", "105\r");
  s.accepts("items = pg.data.SimpleDataset{1, 2}\n");
  s.answers("items:le\t() + 40\n", "42\r");
  CHECK(s.leave() == 0);
}
