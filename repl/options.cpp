#include "repl/options.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <iterator>

#include "tensor/op.h"

namespace pg::repl {
namespace {

constexpr unsigned kRunsScripts = kScript | kTest | kBench;
constexpr unsigned kComputes = kRunsScripts | kRun;
constexpr unsigned kEverywhere = kComputes | kShow;

constexpr OptionRow kOptions[] = {
    {"-e", nullptr, "TEXT", "run this text, with pg and help as globals", kScript},
    {"-l", nullptr, "MODULE", "require this module", kScript},
    {"-i", nullptr, nullptr, "open the prompt afterwards", kScript},
    {"-j", nullptr, "on|off", "turn LuaJIT's compiler on or off", kRunsScripts},
    {"-b", nullptr, nullptr, nullptr, kScript, "bytecode is not saved; scripts run from their text"},
    {"-E", nullptr, nullptr, "ignore LUA_PATH, LUA_CPATH, LUA_INIT and PERIGEE_INIT", kRunsScripts},
    {nullptr, "--threads", "N", "let kernels use N threads", kComputes},
    {nullptr, "--seed", "N", "seed all random numbers", kComputes},
    {nullptr, "--strict", nullptr, "make the use of an undeclared global an error", kRunsScripts},
    {nullptr, "--sandbox", nullptr, "run the script without files and the system; arg holds its arguments", kScript},
    {nullptr, "--profile", "FILE", "write a Chrome trace of the run to FILE", kScript},
    {nullptr, "--time", nullptr, "print wall and processor time and peak memory at the end", kEverywhere},
    {nullptr, "--pattern", "PATTERN", "run only what matches the Lua pattern: tests by \"file: name\", or benchmarks",
     kTest | kBench},
    {nullptr, "--jobs", "N", "run N test files at once; the default is 1", kTest},
    {nullptr, "--seconds", "S", "the time for each benchmark; the default is 0.5", kBench},
    {nullptr, "--dot", nullptr, "print the graph for Graphviz", kShow},
    {nullptr, "--input", "[NAME=]FILE", "the .npy file of an input, by name or in order; once for each", kRun},
    {nullptr, "--output", "[NAME=]FILE", "the .npy file for an output, by name or in order; once for each", kRun},
    {nullptr, "--generate", "man|bash|zsh", nullptr, kScript},
    {"-v", "--version", nullptr, "print the version", kScript},
    {"-h", "--help", nullptr, "print this help and exit", kEverywhere},
};

constexpr CommandRow kCommands[] = {
    {"", kScript, "[script | -] [args]", 0, 0, "Runs Lua scripts with tensors; without a script, the prompt.",
     "The script is a file or - for standard input; arg and ... hold its arguments.\n"
     "A script with the name of a sub-command runs as ./test or after --.\n"
     "The exit code is 0, 1 after an error or if output was lost, or 130 after Ctrl-C."},
    {"test", kTest, "DIR|FILE...", 1, 1 << 20, "runs test files",
     "Runs the files test_*.lua and *_test.lua below each DIR, and each FILE, in processes of their own.\n"
     "A file calls  local t = require \"perigee.test\"  and  t.test(\"name\", function() ... end).\n"
     "In a test: t.check(v) t.equal(a, b) t.close(a, b, {rtol =, atol =}) t.error_contains(f, text, ...)\n"
     "t.error_matches(f, pattern, ...) t.warns(pattern, f, ...) t.skip(reason) t.tmp(name) t.shell(command).\n"
     "The exit code is 0 if all tests passed, or 1. It is 1, too, if no test ran."},
    {"bench", kBench, "FILE", 1, 1, "measures functions",
     "FILE is a Lua script that calls  local bench = ...; bench(\"name\", function() ... end)  or returns\n"
     "a function, or a table of functions by name.\n"
     "For each it prints the median and the fastest time of a call, the spread from the first to the third\n"
     "quartile, and the bytes that a call takes in Lua and in tensors.\n"
     "The exit code is 0, or 1 after an error."},
    {"show", kShow, "MODEL", 1, 1, "describes a model or a file of tensors",
     "MODEL is the .json file of an export, or its path without .json: prints inputs, outputs, parameters with\n"
     "sizes, and the graph. Of a file of tensors, such as .safetensors: names, dtypes and shapes.\n"
     "The exit code is 0, or 1 after an error."},
    {"run", kRun, "MODEL", 1, 1, "runs a model on files of tensors",
     "MODEL is the .json file of an export, or its path without .json, with its .safetensors file beside it.\n"
     "Inputs of another floating dtype are converted. Without --output it prints the outputs.\n"
     "The exit code is 0, or 1 after an error."},
};

constexpr VariableRow kVariables[] = {
    {"LUA_PATH", "where require looks for modules (LUA_CPATH: for those in C)"},
    {"LUA_INIT", "a text, or @FILE, that runs first; not for show, run and --sandbox"},
    {"PERIGEE_INIT", "the same, after LUA_INIT and with pg and help as globals"},
    {"PERIGEE_MAX_ISA", "the instructions that kernels may use: avx512, avx2, sse4 or sse2"},
    {"PERIGEE_NATIVE", "0: fused pointwise ops run without machine code of their own"},
    {"PERIGEE_CONV", "how convolutions of 3 x 3 are computed: measured, direct or winograd"},
};

bool names(const OptionRow& row, std::string_view name) {
  return (row.short_name && name == row.short_name) || (row.long_name && name == row.long_name);
}

const OptionRow* find_option(std::string_view name) {
  for (const OptionRow& row : kOptions)
    if (names(row, name)) return &row;
  return nullptr;
}

std::string more_help(const CommandRow& command) {
  const std::string name = command.name;
  return " (perigee " + name + (name.empty() ? "" : " ") + "-h lists the options)";
}

std::string unknown(std::string_view name, const CommandRow& command) {
  std::vector<std::string_view> known;
  for (const OptionRow& row : kOptions)
    if ((row.places & command.place) && row.text && row.long_name) known.push_back(row.long_name);
  return "unknown option '" + std::string(name) + "'" + (name.starts_with("--") ? did_you_mean(name, known) : "") +
         more_help(command);
}

// Returns what the argument must be, or "" if the value is that.
std::string expected(std::string_view argument, const std::string& value) {
  const char *const first = value.data(), *const last = first + value.size();
  if (argument == "N") {
    long long n = 0;
    const auto end = std::from_chars(first, last, n);
    return end.ec == std::errc() && end.ptr == last && n >= 0 && n <= (1LL << 53) ? "" : "a whole number";
  }
  if (argument == "S") {
    char* end = nullptr;
    return std::strtod(first, &end) > 0 && end == last ? "" : "a positive number";
  }
  if (argument.find('|') == std::string_view::npos) return "";
  const std::string list = "|" + std::string(argument) + "|";
  if (!value.empty() && list.find("|" + value + "|") != std::string::npos) return "";
  std::string text(argument);
  for (size_t at; (at = text.find('|')) != std::string::npos;) text.replace(at, 1, " or ");
  return text;
}

class Reader {
 public:
  Reader(int argc, char** argv, CommandLine& line) : argc_(argc), argv_(argv), line_(line) {}

  std::string read() {
    line_.command = &kCommands[0];
    for (at_ = 1; at_ < argc_ && error_.empty();) {
      const std::string word = argv_[at_];
      if (word == "--") {
        ++at_;
        break;
      }
      if (word.size() > 1 && word[0] == '-')
        read_option(word);
      else if (!read_word(word))
        break;
    }
    line_.rest = at_;
    if (line_.command->place != kScript) finish_command();
    return error_;
  }

 private:
  // Returns false if the word is the script.
  bool read_word(const std::string& word) {
    if (line_.command->place != kScript) {
      line_.words.push_back(word);
    } else {
      const CommandRow* command = find_command(word);
      if (!command) return false;
      line_.command = command;
      for (const GivenOption& given : line_.options)
        if (!(given.row->places & command->place))
          error_ = std::string(given.row->name()) + " is no option of the sub-command " + word + " (./" + word +
                   " runs a script)";
    }
    ++at_;
    return true;
  }

  void finish_command() {
    for (; at_ < argc_; ++at_) line_.words.emplace_back(argv_[at_]);
    const CommandRow& command = *line_.command;
    if (!error_.empty() || line_.has("--help")) return;
    const int count = int(line_.words.size());
    if (count < command.least) error_ = std::string(command.name) + ": " + command.words + " is missing";
    if (count > command.most) error_ = std::string(command.name) + ": one " + command.words + " expected";
    if (error_.empty()) return;
    error_ += " (perigee " + std::string(command.name) + " -h shows how";
    struct stat info;
    if (stat(command.name, &info) == 0 && S_ISREG(info.st_mode))
      error_ += "; ./" + std::string(command.name) + " runs the script of that name";
    error_ += ")";
  }

  // Reads --name, --name=value, -x, -xvalue, or several flags as -xyz.
  void read_option(const std::string& word) {
    ++at_;
    if (word[1] == '-') {
      const size_t equal = word.find('=');
      const OptionRow* row = check(word.substr(0, equal));
      if (!row) return;
      if (equal == std::string::npos) return take(*row, nullptr);
      if (!row->argument) return void(error_ = std::string(row->name()) + " takes no value");
      const std::string value = word.substr(equal + 1);
      return take(*row, &value);
    }
    for (size_t i = 1; i < word.size() && error_.empty(); ++i) {
      const OptionRow* row = check(i == 1 && !find_option({word.data(), 2}) ? word : std::string{'-', word[i]});
      if (!row) return;
      const std::string value = word.substr(i + 1);
      take(*row, row->argument && !value.empty() ? &value : nullptr);
      if (row->argument) return;
    }
  }

  const OptionRow* check(const std::string& name) {
    const OptionRow* row = find_option(name);
    if (row && row->refused)
      error_ = name + ": " + row->refused;
    else if (!row || !(row->places & line_.command->place))
      error_ = unknown(name, *line_.command);
    return error_.empty() ? row : nullptr;
  }

  // Takes the value, or the next word if there is none and the option needs one.
  void take(const OptionRow& row, const std::string* value) {
    const std::string name(row.name());
    if (!row.argument) return line_.options.push_back({&row, ""});
    if (!value && at_ >= argc_) return void(error_ = name + ": " + row.argument + " is missing");
    const std::string text = value ? *value : argv_[at_++];
    const std::string wanted = expected(row.argument, text);
    if (!wanted.empty()) error_ = name + ": expected " + wanted + ", got '" + text + "'";
    line_.options.push_back({&row, text});
  }

  const int argc_;
  char** const argv_;
  CommandLine& line_;
  int at_ = 1;
  std::string error_;
};

}  // namespace

std::span<const OptionRow> option_rows() { return kOptions; }
std::span<const CommandRow> command_rows() { return kCommands; }
std::span<const VariableRow> variable_rows() { return kVariables; }

const CommandRow* find_command(std::string_view name) {
  for (const CommandRow& row : kCommands)
    if (row.place != kScript && name == row.name) return &row;
  return nullptr;
}

const std::string* CommandLine::find(std::string_view name) const {
  const std::string* found = nullptr;
  for (const GivenOption& given : options)
    if (names(*given.row, name)) found = &given.value;
  return found;
}

std::string read_command_line(int argc, char** argv, CommandLine& line) { return Reader(argc, argv, line).read(); }

}  // namespace pg::repl
