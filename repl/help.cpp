#include "repl/help.h"

#include <algorithm>

namespace pg::repl {
namespace {

std::string label(const OptionRow& row) {
  std::string text = row.short_name ? row.short_name : "";
  if (row.long_name) text += (text.empty() ? "" : ", ") + std::string(row.long_name);
  return row.argument ? text + " " + row.argument : text;
}

bool is_listed(const OptionRow& row, const CommandRow& command) { return row.text && (row.places & command.place); }

std::string invocation(const CommandRow& command) {
  const std::string name = command.name;
  return "perigee " + name + (name.empty() ? "" : " ") + "[options] " + command.words;
}

// Calls f with each line of the text.
template <class F>
void for_each_line(std::string_view text, F f) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    f(text.substr(at, end - at));
    at = end + 1;
  }
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// -h ----------------------------------------------------------------------------------------------------------------

void add_row(std::string& text, const std::string& name, std::string_view doc) {
  constexpr size_t kColumn = 26;
  const size_t gap = name.size() + 4 < kColumn ? kColumn - name.size() - 2 : 2;
  text.append("  ").append(name).append(gap, ' ').append(doc).append("\n");
}

// The manual page ---------------------------------------------------------------------------------------------------

// Escapes what roff would read as its own.
std::string roff(std::string_view text) {
  std::string out = replaced(replaced(std::string(text), "\\", "\\e"), "-", "\\-");
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

void add_man_options(std::string& text, const CommandRow& command) {
  for (const OptionRow& row : option_rows())
    if (is_listed(row, command)) text += ".TP\n.B " + roff(label(row)) + "\n" + roff(row.text) + "\n";
}

void add_man_lines(std::string& text, const char* lines) {
  for_each_line(lines, [&](std::string_view line) { text += roff(line) + (line.ends_with('.') ? "\n.br\n" : "\n"); });
}

std::string manual_page() {
  std::string text = ".TH PERIGEE 1 \"\" \"perigee " PERIGEE_VERSION "\" \"User Commands\"\n";
  text += ".SH NAME\nperigee \\- Lua with autodiff tensors\n.SH SYNOPSIS\n";
  for (const CommandRow& command : command_rows()) text += ".B " + roff(invocation(command)) + "\n.br\n";
  for (const CommandRow& command : command_rows()) {
    const bool main = command.place == kScript;
    text += main ? ".SH DESCRIPTION\n" : ".SS " + roff(std::string("perigee ") + command.name) + "\n";
    if (main) text += roff(command.text) + "\n.br\n";
    add_man_lines(text, command.more);
    if (main) text += ".SH OPTIONS\n";
    add_man_options(text, command);
    if (main) text += ".SH SUB-COMMANDS\n";
  }
  text += ".SH ENVIRONMENT\n";
  for (const VariableRow& row : variable_rows()) text += ".TP\n.B " + roff(row.name) + "\n" + roff(row.text) + "\n";
  return text + ".SH SEE ALSO\nluajit(1). help() at the prompt lists the functions of the library.\n";
}

// Completions -------------------------------------------------------------------------------------------------------

// Calls f with each name of the options of the command.
template <class F>
void for_each_name(const CommandRow& command, F f) {
  for (const OptionRow& row : option_rows()) {
    if (!is_listed(row, command)) continue;
    for (const char* name : {row.short_name, row.long_name})
      if (name) f(row, std::string(name));
  }
}

bool has_part(const OptionRow& row, std::string_view part) {
  return row.argument && std::string_view(row.argument).find(part) != std::string_view::npos;
}
bool takes_file(const OptionRow& row) { return has_part(row, "FILE"); }
bool takes_choice(const OptionRow& row) { return has_part(row, "|"); }

// The pattern "a|b|c" of `case` for all names of options with an argument that pass the test.
template <class F>
std::string name_pattern(F test) {
  std::string text;
  for (const OptionRow& row : option_rows())
    if (row.text && row.argument && test(row))
      for (const char* name : {row.short_name, row.long_name})
        if (name) text += (text.empty() ? "" : "|") + std::string(name);
  return text;
}

std::string name_list(const CommandRow& command) {
  std::string text;
  for_each_name(command, [&](const OptionRow&, const std::string& name) { text += (text.empty() ? "" : " ") + name; });
  return text;
}

std::string command_names() {
  std::string text;
  for (const CommandRow& command : command_rows())
    if (command.place != kScript) text += (text.empty() ? "" : " ") + std::string(command.name);
  return text;
}

std::string bash_completion() {
  std::string text = R"(# Completion of perigee for bash, written by perigee --generate bash.
_perigee() {
  local word=${COMP_WORDS[COMP_CWORD]} before= command=- i
  ((COMP_CWORD < 2)) || before=${COMP_WORDS[COMP_CWORD - 1]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --) command=script; break ;;
      )" + name_pattern([](const OptionRow&) { return true; }) +
                     R"() ((i += 1)) ;;
      -?*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  local words= files=1
  case $before in
)";
  for (const OptionRow& row : option_rows())
    if (row.text && takes_choice(row))
      text += "    " + name_pattern([&](const OptionRow& r) { return &r == &row; }) + ") words='" +
              replaced(row.argument, "|", " ") + "' files= ;;\n";
  text += "    " + name_pattern(takes_file) + ") word=${word##*=} ;;\n";
  text += "    " + name_pattern([](const OptionRow& row) { return !takes_file(row) && !takes_choice(row); }) +
          ") files= ;;\n";
  text += "    *)\n      case $command in\n";
  for (const CommandRow& command : command_rows()) {
    const bool main = command.place == kScript;
    text += std::string("        ") + (main ? "-" : command.name) + ") words='" + name_list(command) + "'";
    text += main ? "; [[ $word == -* ]] || words='" + command_names() + "' ;;\n" : " ;;\n";
  }
  return text + R"(      esac ;;
  esac
  local IFS=$'\n'
  COMPREPLY=($(IFS=' '; compgen -W "$words" -- "$word"))
  [[ $word != -* && $files ]] || return 0
  COMPREPLY+=($(compgen -f -- "$word"))
  compopt -o filenames 2>/dev/null
  return 0
}
complete -F _perigee perigee
)";
}

// Escapes what _arguments would read as its own, inside single quotes.
std::string zsh(std::string_view text) {
  std::string out(text);
  for (const char* special : {"\\", "[", "]", ":"}) out = replaced(out, special, std::string("\\") + special);
  return replaced(out, "'", "'\\''");
}

std::string zsh_options(const CommandRow& command, const std::string& indent) {
  std::string text;
  for_each_name(command, [&](const OptionRow& row, const std::string& name) {
    text += " \\\n" + indent + "'*" + name + "[" + zsh(row.text) + "]";
    if (row.argument) {
      const std::string argument = row.argument;
      text += ":" + zsh(argument) + ":";
      if (takes_file(row)) text += "_files";
      if (takes_choice(row)) text += "(" + replaced(argument, "|", " ") + ")";
    }
    text += "'";
  });
  return text;
}

std::string zsh_completion() {
  const CommandRow& program = command_rows().front();
  std::string text =
      "#compdef perigee\n# Completion of perigee for zsh, written by perigee --generate zsh.\n_perigee() {\n";
  text += "  local curcontext=$curcontext state line\n  local -a commands\n  commands=(\n";
  for (const CommandRow& command : command_rows())
    if (command.place != kScript) text += std::string("    '") + command.name + ":" + zsh(command.text) + "'\n";
  text += "  )\n  _arguments -C -S" + zsh_options(program, "    ") + " \\\n    '1: :->first' '*:: :->rest'\n";
  text += "  case $state in\n    first) _describe -t commands command commands; _files ;;\n    rest)\n";
  text += "      case $words[1] in\n";
  for (const CommandRow& command : command_rows())
    if (command.place != kScript)
      text += std::string("        ") + command.name + ") _arguments -S" + zsh_options(command, "          ") +
              " \\\n          '*:file:_files' ;;\n";
  return text + "        *) _files ;;\n      esac ;;\n  esac\n}\n_perigee \"$@\"\n";
}

}  // namespace

std::string help_text(const CommandRow& command) {
  const bool main = command.place == kScript;
  std::string text = "Usage: " + invocation(command) + "\n";
  if (main) text += "       perigee SUB-COMMAND [options] ...\n" + std::string(command.text) + "\n";
  text += "\nOptions:\n";
  for (const OptionRow& row : option_rows())
    if (is_listed(row, command)) add_row(text, label(row), row.text);
  if (main) {
    text += "\nSub-commands (perigee SUB-COMMAND -h explains them):\n";
    for (const CommandRow& row : command_rows())
      if (row.place != kScript) add_row(text, std::string(row.name) + " " + row.words, row.text);
    text += "\nEnvironment:\n";
    for (const VariableRow& row : variable_rows()) add_row(text, row.name, row.text);
  }
  return text + "\n" + command.more + "\n";
}

std::string generated_text(std::string_view kind) {
  return kind == "man" ? manual_page() : kind == "bash" ? bash_completion() : zsh_completion();
}

}  // namespace pg::repl
