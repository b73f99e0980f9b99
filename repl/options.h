// The options of the program and of its sub-commands. The parser, -h, the completions of the shells and the manual page
// are made of the tables here.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pg::repl {

// Where an option may be given, as bits.
enum Place : unsigned { kScript = 1, kTest = 2, kBench = 4, kShow = 8, kRun = 16 };

// The argument of an option says what it may be: N is a whole number, S a positive number, "a|b" one of these words,
// and what contains FILE is completed by names of files.
struct OptionRow {
  const char* short_name;  // "-e", or null
  const char* long_name;   // "--seed", or null
  const char* argument;    // its name in help, or null if the option has none
  const char* text;        // one line for help; null: not listed
  unsigned places;
  const char* refused = nullptr;  // why the option is an error

  std::string_view name() const { return long_name ? long_name : short_name; }
};

struct CommandRow {
  const char* name;  // "" is the program itself
  Place place;
  const char* words;  // what follows the options, for help
  int least, most;    // the number of these words, for sub-commands
  const char* text;   // one line
  const char* more;   // lines about files, results and exit codes
};

struct VariableRow {
  const char* name;
  const char* text;
};

std::span<const OptionRow> option_rows();
std::span<const CommandRow> command_rows();  // the program first
std::span<const VariableRow> variable_rows();

// Returns the sub-command of that name, or null.
const CommandRow* find_command(std::string_view name);

struct GivenOption {
  const OptionRow* row;
  std::string value;  // "" if the option has no argument
};

struct CommandLine {
  const CommandRow* command;  // the program or a sub-command
  std::vector<GivenOption> options;
  std::vector<std::string> words;  // of a sub-command: the words that are no options
  int rest = 0;                    // of the program: index of the script in argv, or argc

  // The last value given for an option, by its first name; null if it was not given.
  const std::string* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
};

// Reads the command line. Options of the program end at the first word that is none, since later ones belong to the
// script; those of a sub-command may be anywhere before "--". Returns "", or what is wrong.
std::string read_command_line(int argc, char** argv, CommandLine& line);

}  // namespace pg::repl
