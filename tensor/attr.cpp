#include "tensor/attr.h"

#include "tensor/error.h"

namespace pg {

namespace {
template <class List>
std::string join(const List& list) {
  std::string text;
  for (auto v : list) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return "{" + text + "}";
}

// Escapes control characters: messages are C strings of one line.
std::string quoted(const std::string& s) {
  std::string text;
  for (const unsigned char c : s)
    c < 32 || c == 127 ? void(text += fmt::format("\\{:03}", int(c))) : text.push_back(char(c));
  return '"' + text + '"';
}
}  // namespace

std::string to_string(const AttrValue& value) {
  struct Printer {
    std::string operator()(std::monostate) { return "nil"; }
    std::string operator()(bool v) { return v ? "true" : "false"; }
    std::string operator()(int64_t v) { return std::to_string(v); }
    std::string operator()(double v) { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) { return quoted(v); }
    std::string operator()(DType v) { return name_of(v); }
    std::string operator()(Device v) { return name_of(v); }
    std::string operator()(const Ints& v) { return join(v); }
    std::string operator()(const Floats& v) { return join(v); }
    std::string operator()(RandomKey v) { return fmt::format("seed {} tick {}", v.seed, v.tick); }
    std::string operator()(const Ref<Generator>&) { return "generator"; }
    std::string operator()(const std::shared_ptr<const Graph>&) { return "graph"; }
  };
  return std::visit(Printer{}, value);
}

}  // namespace pg
