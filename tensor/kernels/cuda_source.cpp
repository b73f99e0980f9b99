#include "tensor/kernels/cuda_source.h"

#include <algorithm>
#include <cmath>

#include "tensor/op.h"

namespace pg {
namespace {

using Kind = TileValue::Kind;

const char* type_name(DType t) {
  constexpr const char* kNames[kDTypeCount] = {"bool", "uint8_t",  "int8_t", "int32_t", "int64_t",
                                               "Half", "BFloat16", "float",  "double"};
  return kNames[int(t)];
}

std::string number_text(double number) {
  if (std::isnan(number)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(number)) return fmt::format("{}std::numeric_limits<double>::infinity()", number < 0 ? "-" : "");
  const std::string text = fmt::format("{}", number);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

class Printer {
 public:
  explicit Printer(const TileBody& body) : body_(body), needed_(body.values.size(), false) {
    for (const TileOutput& out : body.outputs) needed_[size_t(out.value)] = true;
    for (size_t v = needed_.size(); v-- > 0;)
      for (int k = 0; needed_[v] && k < body.values[v].count; ++k) needed_[size_t(body.values[v].operands[k])] = true;
  }

  std::string kernel(const std::string& name) const {
    std::string lines;
    for (size_t v = 0; v < body_.values.size(); ++v)
      if (needed_[v]) lines += fmt::format("    const {} v{} = {};\n", type_name(body_.values[v].dtype), v, value(v));
    for (size_t k = 0; k < body_.outputs.size(); ++k) lines += output(k);
    return fmt::format(
        "namespace pg::formulas {{\n"
        "extern \"C\" __global__ void {}(const Words<{}> a) {{\n"
        "  const int64_t threads = int64_t(gridDim.x) * blockDim.x;\n"
        "  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < {}; i += threads) {{\n"
        "{}"
        "  }}\n}}\n}}  // namespace pg::formulas\n",
        name, first_output() + body_.outputs.size(), numel(body_.space), lines);
  }

 private:
  size_t first_output() const { return body_.inputs.size() * size_t(1 + body_.space.size()); }

  std::string value(size_t v) const {
    const TileValue& value = body_.values[v];
    const std::string text = computed(value);
    if (value.rounded != DType::kFloat16 && value.rounded != DType::kBFloat16) return text;
    return fmt::format("convert_one<float>(convert_one<{}>({}))", type_name(value.rounded), text);
  }

  std::string computed(const TileValue& value) const {
    switch (value.kind) {
      case Kind::kInput:
        return fmt::format("load<{}>(a.word[{}], {})", type_name(value.dtype), value.index, offset(value.index));
      case Kind::kConstant:
        return fmt::format("{}({})", type_name(value.dtype), number_text(value.number));
      case Kind::kConvert:
        return fmt::format("convert_one<{}>(v{})", type_name(value.dtype), value.operands[0]);
      default:
        return application(value);
    }
  }

  static std::string application(const TileValue& value) {
    std::string numbers, operands;
    for (size_t k = 0; k < std::min(value.op->attrs.size(), size_t(kMaxTileParams)); ++k)
      numbers += (k ? ", " : "") + number_text(value.params[k]);
    for (int k = 0; k < value.count; ++k) operands += fmt::format(", v{}", value.operands[k]);
    return fmt::format("apply<\"{}\">({{{}}}{})", value.op->name, numbers, operands);
  }

  // The position of element i in an input, from its strides.
  std::string offset(int32_t input) const {
    const Dims &shape = body_.inputs[size_t(input)].shape, &space = body_.space;
    const int rank = space.size(), missing = rank - shape.size();
    std::string text;
    int64_t below = 1;  // the number of elements per step of the dim
    for (int d = rank - 1; d >= missing; below *= std::max<int64_t>(space[d--], 1)) {
      if (shape[d - missing] == 1) continue;
      std::string index = below == 1 ? "i" : fmt::format("i / {}", below);
      if (d > 0) index += fmt::format(" % {}", std::max<int64_t>(space[d], 1));
      if (index != "i") index = "(" + index + ")";
      if (!text.empty()) text += " + ";
      text += fmt::format("{} * a.word[{}]", index, body_.inputs.size() + size_t(input * rank + d));
    }
    return text.empty() ? "0" : text;
  }

  std::string output(size_t k) const {
    const TileOutput& out = body_.outputs[k];
    const char* type = type_name(out.dtype);
    return fmt::format("    {}store<{}>(a.word[{}], i, convert_one<{}>(v{}));\n", out.single ? "if (i == 0) " : "",
                       type, first_output() + k, type, out.value);
  }

  const TileBody& body_;
  std::vector<bool> needed_;
};

}  // namespace

std::optional<std::string> cuda_kernel(const TileBody& body, const std::string& name) {
  if (body.reduction.op) return std::nullopt;
  return Printer(body).kernel(name);
}

std::vector<int64_t> cuda_arguments(const TileBody& body, std::span<const View> in, std::span<const View> out) {
  const auto address = [](const View& v) { return int64_t(reinterpret_cast<intptr_t>(v.data)); };
  std::vector<int64_t> words;
  for (const View& v : in) words.push_back(address(v));
  for (const View& v : in)
    for (int64_t stride : broadcast_strides(v.shape(), *v.strides, body.space)) words.push_back(stride);
  for (const View& v : out) words.push_back(address(v));
  return words;
}

}  // namespace pg
