#include "tensor/attr.h"

#include "tensor/error.h"

namespace pg {

int dim_index(const char* op, const char* name, int64_t dim, int rank) {
  const int64_t index = dim > 0 ? dim - 1 : dim + rank;
  if (dim != 0 && index >= 0 && index < rank) return int(index);
  if (rank == 0 && (dim == 1 || dim == -1)) return 0;
  bad_argument(op, name, fmt::format("a dim from 1 to {} or -{} to -1", rank, rank), std::to_string(dim));
}

namespace {
template <class List>
std::string join(const List& list) {
  std::string text;
  for (auto v : list) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return "{" + text + "}";
}

// With control characters written out: messages are C strings of one line.
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
  };
  return std::visit(Printer{}, value);
}

}  // namespace pg
