#include "tensor/kernels/cuda_printer.h"

#include <algorithm>
#include <utility>

#include "tensor/error.h"
#include "tensor/op.h"

namespace pg {
namespace {

using Kind = TileValue::Kind;

const char* type_name(DType t) {
  constexpr const char* kNames[kDTypeCount] = {"bool", "uint8_t",  "int8_t", "int32_t", "int64_t",
                                               "Half", "BFloat16", "float",  "double"};
  return kNames[int(t)];
}

}  // namespace

size_t cuda_param_count(const TileValue& value) { return std::min(value.op->attrs.size(), size_t(kMaxTileParams)); }

CudaPrinter::CudaPrinter(const CudaBody& body, std::string_view form, size_t words)
    : body_(body),
      form_(form),
      operands_(body.tiles.inputs.size() + body.tiles.outputs.size()),
      words_(words),
      rank_(form[operands_] - 'a'),
      width_(form[operands_ + 1] - '0'),
      sizes_(1 + operands_),
      number_(body.tiles.values.size()) {
  size_t next = sizes_ + size_t(rank_);
  for (size_t k = 0; k < operands_; ++k) strides_.push_back(std::exchange(next, next + size_t(spread(k) ? rank_ : 0)));
  for (const CudaBody::Number& n : body.numbers) {
    if (!number_[n.value]) number_[n.value] = next;
    ++next;
  }
}

std::string CudaPrinter::kernel(const std::string& name) const {
  const std::string head = fmt::format(
      "namespace pg::formulas {{\n"
      "PERIGEE_KERNEL({}, Words<{}>) {{\n"
      "  using I = {};\n",
      name, words_, form_.back() == 'w' ? "int64_t" : "int32_t");
  const std::string end = "  }\n}\n}  // namespace pg::formulas\n";
  if (width_ == 1)
    return head +
           "  for (int64_t at = thread_index(); at < a.word[0]; at += thread_count()) {\n"
           "    const I i = I(at);\n" +
           coordinates() + lines() + end;
  return head +
         fmt::format(
             "  for (int64_t at = {0} * thread_index(); at < a.word[0]; at += {0} * thread_count()) {{\n"
             "    const I i = I(at);\n"
             "    const int64_t left = a.word[0] - at;\n{1}{2}"
             "    PERIGEE_UNROLL\n"
             "    for (int j = 0; j < {0}; ++j) {{\n{3}    }}\n{4}",
             width_, coordinates(), group_loads(), lines(), group_stores()) +
         end;
}

std::string CudaPrinter::element() const {
  const TileReduction& r = tiles().reductions.front();
  return fmt::format(
      "__device__ inline {} element(const Words<{}>& a, int64_t at) {{\n"
      "    using I = {};\n"
      "    const I i = I(at);\n"
      "{}{}    return v{};\n}}\n",
      type_name(tiles().values[size_t(r.value)].dtype), words_, form_.back() == 'w' ? "int64_t" : "int32_t",
      coordinates(), lines(), r.value);
}

std::string CudaPrinter::lines() const {
  std::string lines;
  for (size_t v = 0; v < tiles().values.size(); ++v)
    if (body_.needed[v]) lines += line(v);
  for (size_t k = 0; k < tiles().outputs.size(); ++k) lines += output(k);
  return lines;
}

// The coordinates of element i, when an operand needs them.
std::string CudaPrinter::coordinates() const {
  bool any = false;
  for (size_t k = 0; k < operands_; ++k) any |= spread(k);
  if (!any) return "";
  std::string text, rest = "i";
  for (int d = rank_ - 1; d > 0; --d) {
    text += fmt::format("    const I c{} = {} % I(a.word[{}]), r{} = {} / I(a.word[{}]);\n", d, rest,
                        sizes_ + size_t(d), d, rest, sizes_ + size_t(d));
    rest = fmt::format("r{}", d);
  }
  return text + fmt::format("    const I c0 = {};\n", rest);
}

std::string CudaPrinter::position(size_t operand) const {
  if (form_[operand] == 's') return "0";
  if (form_[operand] == 'f') return "i";
  std::string text;
  for (int d = 0; d < rank_; ++d)
    text += fmt::format("{}{} * I(a.word[{}])", d ? " + " : "",
                        width_ > 1 && d + 1 == rank_ ? fmt::format("(c{} + j)", d) : fmt::format("c{}", d),
                        strides_[operand] + size_t(d));
  return text;
}

std::string CudaPrinter::group_loads() const {
  std::string text;
  for (size_t k = 0; k < operands_; ++k) {
    if (!grouped(k)) continue;
    const std::string pack = fmt::format("Pack<{}, {}>", type_name(body_.operand_dtype(k)), width_);
    if (k < tiles().inputs.size())
      text += fmt::format("    const auto p{} = load_pack<{}>(a.word[{}], i, left);\n", k, pack, 1 + k);
    else
      text += fmt::format("    {} p{};\n", pack, k);
  }
  return text;
}

std::string CudaPrinter::group_stores() const {
  std::string text;
  for (size_t k = tiles().inputs.size(); k < operands_; ++k)
    if (grouped(k)) text += fmt::format("    store_pack(a.word[{}], i, left, p{});\n", 1 + k, k);
  return text;
}

std::string CudaPrinter::line(size_t v) const {
  const TileValue& value = tiles().values[v];
  std::string text = computed(v), check;
  if (value.dtype == DType::kFloat32 && is_half(value.rounded))
    text = fmt::format("convert_one<float>(convert_one<{}>({}))", type_name(value.rounded), text);
  if (value.kind == Kind::kOp && value.op->has(kRefuses) && is_integer(value.compute))
    check = fmt::format(
        "    if (refused<\"{}\">(v{})) {{\n"
        "      report(reinterpret_cast<Fault*>(a.word[{}]), int32_t(a.word[{}]), int64_t(v{}), i);\n"
        "      continue;\n    }}\n",
        value.op->name, value.operands[1], words_ - 2, words_ - 1, value.operands[1]);
  return check + fmt::format("    const {} v{} = {};\n", type_name(value.dtype), v, text);
}

std::string CudaPrinter::computed(size_t v) const {
  const TileValue& value = tiles().values[v];
  const char* type = type_name(value.dtype);
  const auto input = size_t(value.index);
  switch (value.kind) {
    case Kind::kInput:
      if (form_[input] == 'n') return fmt::format("bits<{}>(a.word[{}])", type, 1 + input);
      if (grouped(input)) return fmt::format("p{}.at[j]", input);
      return fmt::format("load<{}>(a.word[{}], {})", type, 1 + input, position(input));
    case Kind::kConstant:
      return fmt::format("bits<{}>(a.word[{}])", type, number_[v]);
    case Kind::kConvert:
      return fmt::format("convert_one<{}>(v{})", type, value.operands[0]);
    default:
      return application(v);
  }
}

std::string CudaPrinter::application(size_t v) const {
  const TileValue& value = tiles().values[v];
  std::string numbers, operands;
  for (size_t k = 0; k < cuda_param_count(value); ++k)
    numbers += fmt::format("{}bits<double>(a.word[{}])", k ? ", " : "", number_[v] + k);
  for (int k = 0; k < value.count; ++k) operands += fmt::format(", v{}", value.operands[k]);
  return fmt::format("apply<\"{}\">({{{}}}{})", value.op->name, numbers, operands);
}

std::string CudaPrinter::output(size_t k) const {
  const TileOutput& out = tiles().outputs[k];
  const size_t operand = tiles().inputs.size() + k;
  const char* type = type_name(out.dtype);
  std::string value = fmt::format("v{}", out.value);
  if (tiles().values[size_t(out.value)].dtype != out.dtype) value = fmt::format("convert_one<{}>({})", type, value);
  if (grouped(operand)) return fmt::format("    p{}.at[j] = {};\n", operand, value);
  const char* first = !out.single ? "" : width_ > 1 ? "if (i + j == 0) " : "if (i == 0) ";
  return fmt::format("    {}store<{}>(a.word[{}], {}, {});\n", first, type, 1 + operand, position(operand), value);
}

}  // namespace pg
