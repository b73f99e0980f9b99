// tostring(x): the elements in aligned columns, with … for omitted ones, and the type as a footer.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "tensor/device_table.h"
#include "vm/bindings.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

constexpr int64_t kWhole = 1000;  // a tensor with at most this number of elements is printed whole
constexpr int64_t kEdge = 3;      // otherwise the number of elements shown at both ends of each long dim
constexpr size_t kWidth = 80;     // the width of a line
constexpr int kDecimals = 4;
constexpr const char* kGap = "…";  // for omitted elements

// The indices of one dim that are printed; -1 marks the gap.
std::vector<int64_t> shown_indices(int64_t size, int64_t edge) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < size; ++i) {
    if (edge > 0 && size > 2 * edge && i == edge) {
      indices.push_back(-1);
      i = size - edge;
    }
    indices.push_back(i);
  }
  return indices;
}

// The number of elements of a shape that are shown with this edge.
int64_t shown_count(const Dims& shape, int64_t edge) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= std::min(size, 2 * edge);
  return count;
}

// The edge for a shape: 0 shows everything; shapes with many dims have shorter edges.
int64_t edge_for(const Dims& shape) {
  if (numel(shape) <= kWhole) return 0;
  int64_t edge = kEdge;
  while (edge > 1 && shown_count(shape, edge) > kWhole) --edge;
  return edge;
}

// Reads single elements of an array on any device, in any layout.
class Elements {
 public:
  explicit Elements(const Array& array) : array_(array), size_(size_of(array.type.dtype)) {
    if (array.type.device.is_cpu() || !array.contiguous || numel(array.type.shape) > kWhole) return;
    copy_.resize(size_t(numel(array.type.shape)) * size_t(size_));
    copy_out(copy_.data(), array.data(), copy_.size());
  }

  // Copies the element at `offset`, counted in elements from the first, to `to`.
  void read(int64_t offset, void* to) const {
    const char* from = static_cast<const char*>(array_.data()) + offset * size_;
    if (!copy_.empty())
      std::copy_n(copy_.data() + offset * size_, size_, static_cast<char*>(to));
    else if (array_.type.device.is_cpu())
      std::copy_n(from, size_, static_cast<char*>(to));
    else
      copy_out(to, from, size_t(size_));
  }

 private:
  void copy_out(void* to, const void* from, size_t bytes) const { download(array_.type.device, to, from, bytes); }

  const Array& array_;
  int size_;
  std::vector<char> copy_;
};

std::string fixed(double v, int decimals) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, v, std::chars_format::fixed, decimals).ptr;
  return {text, end};
}

std::string scientific(double v) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, v, std::chars_format::scientific, kDecimals).ptr;
  return {text, end};
}

std::string special(double v) { return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"; }

// The number of decimals that a number needs, up to kDecimals: 1.00001 is 1.0000, since it is not 1.
int decimals_of(double v) {
  const std::string text = fixed(v, kDecimals);
  int decimals = kDecimals;
  while (decimals > 0 && text[text.size() - 1 - size_t(kDecimals - decimals)] == '0') --decimals;
  return decimals == 0 && v != std::floor(v) ? kDecimals : decimals;
}

// Formats all numbers in one form: fixed with the decimals that they need, or scientific if fixed would hide some
// numbers.
void format_floats(const std::vector<double>& numbers, std::vector<std::string>& out) {
  double least = INFINITY, most = 0;
  bool whole = true;
  int decimals = 0;
  for (const double v : numbers) {
    if (!std::isfinite(v) || v == 0) continue;
    least = std::min(least, std::fabs(v)), most = std::max(most, std::fabs(v));
    whole = whole && v == std::floor(v);
  }
  const bool exponent = most >= 1e8 || (!whole && (least < 1e-4 || most / least > 1e5));
  for (const double v : numbers)
    if (!whole && !exponent && std::isfinite(v)) decimals = std::max(decimals, decimals_of(v));
  for (const double v : numbers)
    out.push_back(!std::isfinite(v) ? special(v) : exponent ? scientific(v) : fixed(v, decimals));
}

class Printer {
 public:
  explicit Printer(const Array& array) : array_(array), dtype_(array.type.dtype) {
    if (numel(array.type.shape) == 0) return;
    const int64_t edge = edge_for(array.type.shape);
    for (const int64_t size : array.type.shape) indices_.push_back(shown_indices(size, edge));
  }

  std::string print() {
    if (numel(array_.type.shape) == 0) return "{}";
    const Elements elements(array_);
    gather(elements, 0, 0);
    if (is_float(dtype_)) format_floats(numbers_, cells_);
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
    if (array_.type.shape.empty()) return cells_[0];
    write(0);
    return std::move(text_);
  }

 private:
  // Reads the elements that will be shown, in order.
  void gather(const Elements& elements, int dim, int64_t offset) {
    if (dim < array_.type.shape.size()) {
      for (const int64_t i : indices_[size_t(dim)])
        if (i >= 0) gather(elements, dim + 1, offset + i * array_.strides[dim]);
      return;
    }
    alignas(8) char element[8];
    elements.read(offset, element);
    if (dtype_ == DType::kBool)
      cells_.push_back(element[0] ? "true" : "false");
    else if (dtype_ == DType::kInt64)
      cells_.push_back(std::to_string(*reinterpret_cast<const int64_t*>(element)));
    else if (is_integer(dtype_))
      cells_.push_back(std::to_string(int64_t(load_number(dtype_, element))));
    else
      numbers_.push_back(load_number(dtype_, element));
  }

  void write(int dim) {
    text_ += '{';
    if (dim + 1 == array_.type.shape.size())
      write_row(dim);
    else
      write_blocks(dim);
    text_ += '}';
  }

  void write_blocks(int dim) {
    const int rank = array_.type.shape.size();
    const std::string between =
        std::string(size_t(std::max(1, rank - dim - 1)), '\n') + std::string(size_t(dim + 1), ' ');
    const auto& indices = indices_[size_t(dim)];
    for (size_t k = 0; k < indices.size(); ++k) {
      if (k > 0) text_ += "," + between;
      if (indices[k] < 0)
        text_ += kGap;
      else
        write(dim + 1);
    }
  }

  // Writes the innermost dim, on several lines if it is long.
  void write_row(int dim) {
    const size_t indent = size_t(dim) + 1;
    const size_t closing = indent + 1;  // the brackets after the last element and a comma
    size_t column = indent;
    const auto& indices = indices_[size_t(dim)];
    for (size_t k = 0; k < indices.size(); ++k) {
      const bool gap = indices[k] < 0;
      const size_t width = gap ? 1 : width_;
      if (k > 0) {
        const bool last = k + 1 == indices.size();
        const bool fits = column + 2 + width + (last ? closing : 1) <= kWidth;
        text_ += fits ? ", " : ",\n" + std::string(indent, ' ');
        column = fits ? column + 2 : indent;
      }
      if (gap)
        text_ += kGap;
      else
        text_.append(width_ - cells_[next_].size(), ' '), text_ += cells_[next_++];
      column += width;
    }
  }

  const Array& array_;
  const DType dtype_;
  std::vector<std::vector<int64_t>> indices_;  // the shown indices, by dim
  std::vector<double> numbers_;
  std::vector<std::string> cells_;
  size_t width_ = 0, next_ = 0;
  std::string text_;
};

std::string print_value(const Value& v) {
  if (v.is_number()) return fmt::format("{}", v.number());
  const std::string footer = "[" + to_string(v.type()) + "]";
  if (!v.array().buffer) return footer;
  return Printer(v.array()).print() + (v.rank() == 0 ? " " : "\n") + footer;
}

// "[parameter 'weight' float32 ?x3, no value yet]"
std::string print_unbound(lua_State* L, Box& box) {
  if (box.released) return "[released tensor]";
  std::string text = "[parameter";
  if (box.has_extra) {
    push_extra(L, box, 1);
    lua_getfield(L, -1, "name");
    if (lua_isstring(L, -1)) text += fmt::format(" '{}'", lua_tostring(L, -1));
    lua_getfield(L, -2, "dtype");
    if (lua_isstring(L, -1)) text += fmt::format(" {}", lua_tostring(L, -1));
    lua_getfield(L, -3, "shape");
    for (int i = 1; lua_istable(L, -1) && i <= int(lua_objlen(L, -1)); ++i) {
      lua_rawgeti(L, -1, i);
      const lua_Number size = lua_tonumber(L, -1);
      text += i > 1 ? "x" : " ";
      text += size == 0 ? "?" : fmt::format("{}", int64_t(size));
      lua_pop(L, 1);
    }
  }
  return text + ", no value yet]";
}

}  // namespace

std::string printed(const Value& value) { return print_value(value); }

namespace {

int tensor_to_string(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "tostring", "x");
  need_stack(L, 8, "tostring");
  if (state.trace && box.get().defined()) state.trace->touch(L, box, 1);
  const Value& value = box.get();
  const bool traced = value.is_array() && !value.array().buffer;
  const std::string name = traced ? parameter_name(L, box, 1) : "";
  const std::string text = traced
                               ? "[traced " + (name.empty() ? "" : '"' + name + "\" ") + to_string(value.type()) + "]"
                           : value.defined() ? print_value(value)
                                             : print_unbound(L, box);
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

}  // namespace

void open_print(lua_State* L, State& state) {
  kTensorMetatable.push_table(L);
  register_functions(L, state, {{"__tostring", entry<tensor_to_string>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm
