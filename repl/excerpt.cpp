#include "repl/excerpt.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

namespace pg::repl {
namespace {

constexpr const char* kIndent = "    ";
constexpr size_t kWidest = 160;  // bytes of a source line that is shown

struct Place {
  std::string file, rest;
  int line = 0;
};

bool read_place(const std::string& message, Place& place) {
  for (size_t colon = message.find(':'); colon != message.npos; colon = message.find(':', colon + 1)) {
    size_t end = colon + 1;
    while (end < message.size() && end < colon + 9 && std::isdigit(static_cast<unsigned char>(message[end]))) ++end;
    if (end == colon + 1 || message.compare(end, 2, ": ") != 0) continue;
    place = {message.substr(0, colon), message.substr(end + 2), std::stoi(message.substr(colon + 1, end - colon - 1))};
    return true;
  }
  return false;
}

bool read_line(std::istream& text, int number, std::string& line) {
  for (int i = 0; i < number; ++i)
    if (!std::getline(text, line)) return false;
  return line.size() <= kWidest && line.find_first_not_of(" \t\r") != line.npos;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Returns where the word begins in the line, whole, or npos. After a field's name the place behind '.' or ':' is
// preferred.
size_t find_word(std::string_view line, std::string_view word) {
  size_t found = line.npos;
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool starts = at == 0 || !is_name(line[at - 1]) || !is_name(word.front());
    const bool ends = end == line.size() || !is_name(line[end]) || !is_name(word.back());
    if (!starts || !ends) continue;
    if (at > 0 && (line[at - 1] == '.' || line[at - 1] == ':')) return at;
    if (found == line.npos) found = at;
  }
  return found;
}

void add_quoted(const std::string& text, std::vector<std::string>& words) {
  for (size_t at = text.find('\''); at != text.npos;) {
    const size_t end = text.find('\'', at + 1);
    if (end == text.npos) break;
    if (end > at + 1) words.push_back(text.substr(at + 1, end - at - 1));
    at = text.find('\'', end + 1);
  }
}

// Returns the words that the message may be about: "op: bad argument 'x'" is about the call of the op or its operator,
// other messages are about what they quote.
std::vector<std::string> words_of(const std::string& rest) {
  static const std::map<std::string, std::vector<std::string>> operators = {
      {"add", {"+"}}, {"sub", {"-"}},       {"mul", {"*"}},          {"div", {"/"}},         {"pow", {"^"}},
      {"neg", {"-"}}, {"remainder", {"%"}}, {"compare", {"<", ">"}}, {"concatenate", {".."}}};
  std::vector<std::string> words;
  const bool of_argument = rest.find(": bad argument '") != rest.npos && rest.find("unknown option") == rest.npos;
  if (!of_argument) add_quoted(rest, words);
  size_t end = 0;
  while (end < rest.size() && (is_name(rest[end]) || rest[end] == '.')) ++end;
  std::string name = end > 0 && rest[end] == ':' ? rest.substr(0, end) : "";
  if (!name.empty()) words.push_back(name);
  constexpr std::string_view kAttempt = "attempt to ";
  if (rest.starts_with(kAttempt))
    name = rest.substr(kAttempt.size(), rest.find(' ', kAttempt.size()) - kAttempt.size());
  if (const auto found = operators.find(name); found != operators.end())
    words.insert(words.end(), found->second.begin(), found->second.end());
  return words;
}

struct Mark {
  size_t at = std::string::npos, size = 1;
};

Mark find_mark(const std::string& line, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "<eof>") return {line.size(), 1};
    if (const size_t at = find_word(line, word); at != line.npos) return {at, word.size()};
  }
  return {};
}

}  // namespace

std::string excerpt(const std::string& message, const std::string& entry) {
  Place place = {"stdin", message, 0};  // a call whose frame a tail call has replaced has no position
  const bool placed = read_place(message.substr(0, message.find('\n')), place);
  const bool typed = place.file == "stdin";
  const std::vector<std::string> words = words_of(place.rest.substr(0, place.rest.find('\n')));
  std::string line;
  if (typed) {
    for (int number = placed ? place.line : 1;; ++number) {
      std::istringstream text(entry);
      if (!read_line(text, number, line)) return "";
      if (placed || find_mark(line, words).at != line.npos) break;
    }
  } else {
    std::error_code error;
    if (!std::filesystem::is_regular_file(place.file, error)) return "";
    std::ifstream file(place.file);
    if (!read_line(file, place.line, line)) return "";
  }
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
  const Mark mark = find_mark(line, words);
  if (mark.at == line.npos) return typed ? "" : "\n" + (kIndent + line);
  std::string under;
  for (const char c : line.substr(0, mark.at)) {
    if (c == '\t')
      under += c;
    else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80)
      under += ' ';
  }
  return "\n" + (kIndent + line) + "\n" + (kIndent + under) + "^" + std::string(mark.size - 1, '~');
}

}  // namespace pg::repl
