#include "tensor/kernels/cuda_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/op.h"

namespace pg {
namespace {

using Kind = TileValue::Kind;

constexpr size_t kMaxWords = 480;  // of an argument, of which CUDA allows 4 KB

const char* type_name(DType t) {
  constexpr const char* kNames[kDTypeCount] = {"bool", "uint8_t",  "int8_t", "int32_t", "int64_t",
                                               "Half", "BFloat16", "float",  "double"};
  return kNames[int(t)];
}

// The number of parameters of an op.
size_t param_count(const TileValue& value) { return std::min(value.op->attrs.size(), size_t(kMaxTileParams)); }

bool refuses(const TileValue& value) {
  return value.kind == Kind::kOp && value.op->has(kRefuses) && is_integer(value.compute);
}

// The values that the outputs depend on.
std::vector<bool> needed_values(const TileBody& body) {
  std::vector<bool> needed(body.values.size(), false);
  for (const TileOutput& out : body.outputs) needed[size_t(out.value)] = true;
  for (size_t v = needed.size(); v-- > 0;)
    for (int k = 0; needed[v] && k < body.values[v].count; ++k) needed[size_t(body.values[v].operands[k])] = true;
  return needed;
}

// Calls f(value, number, dtype) for each number of a body, in the order of its words.
template <class F>
void each_number(const TileBody& body, F f) {
  const std::vector<bool> needed = needed_values(body);
  for (size_t v = 0; v < body.values.size(); ++v) {
    const TileValue& value = body.values[v];
    if (!needed[v]) continue;
    if (value.kind == Kind::kConstant) f(v, value.number, value.dtype);
    for (size_t k = 0; value.kind == Kind::kOp && k < param_count(value); ++k) f(v, value.params[k], DType::kFloat64);
  }
}

// Prints a kernel. `form` is that of the call; the words are in the order of the constructor of CudaCall.
class Printer {
 public:
  Printer(const TileBody& body, std::string_view form, size_t words)
      : body_(body), form_(form), operands_(body.inputs.size() + body.outputs.size()), words_(words) {
    rank_ = form[operands_] - 'a';
    sizes_ = 1 + operands_;
    size_t next = sizes_ + size_t(rank_);
    for (size_t k = 0; k < operands_; ++k) strides_.push_back(std::exchange(next, next + (spread(k) ? rank_ : 0)));
    number_.resize(body.values.size());
    each_number(body, [&](size_t v, double, DType) {
      if (!number_[v]) number_[v] = next;
      ++next;
    });
  }

  std::string kernel(const std::string& name) const {
    std::string lines;
    const std::vector<bool> needed = needed_values(body_);
    for (size_t v = 0; v < body_.values.size(); ++v)
      if (needed[v]) lines += line(v);
    for (size_t k = 0; k < body_.outputs.size(); ++k) lines += output(k);
    return fmt::format(
        "namespace pg::formulas {{\n"
        "PERIGEE_KERNEL({}, Words<{}>) {{\n"
        "  using I = {};\n"
        "  for (int64_t at = thread_index(); at < a.word[0]; at += thread_count()) {{\n"
        "    const I i = I(at);\n"
        "{}{}"
        "  }}\n}}\n}}  // namespace pg::formulas\n",
        name, words_, form_.back() == 'w' ? "int64_t" : "int32_t", coordinates(), lines);
  }

 private:
  bool spread(size_t operand) const { return form_[operand] == 'g'; }

  // The coordinates of element i, when an operand needs them.
  std::string coordinates() const {
    if (std::none_of(strides_.begin(), strides_.end(),
                     [&](const size_t& s) { return spread(size_t(&s - &strides_[0])); }))
      return "";
    std::string text;
    std::string rest = "i";
    for (int d = rank_ - 1; d > 0; --d) {
      text += fmt::format("    const I c{} = {} % I(a.word[{}]), r{} = {} / I(a.word[{}]);\n", d, rest,
                          sizes_ + size_t(d), d, rest, sizes_ + size_t(d));
      rest = fmt::format("r{}", d);
    }
    return text + fmt::format("    const I c0 = {};\n", rest);
  }

  std::string position(size_t operand) const {
    if (form_[operand] == 's') return "0";
    if (form_[operand] == 'f') return "i";
    std::string text;
    for (int d = 0; d < rank_; ++d)
      text += fmt::format("{}c{} * I(a.word[{}])", d ? " + " : "", d, strides_[operand] + size_t(d));
    return text;
  }

  std::string line(size_t v) const {
    const TileValue& value = body_.values[v];
    std::string text = computed(v), check;
    if (value.dtype == DType::kFloat32 && (value.rounded == DType::kFloat16 || value.rounded == DType::kBFloat16))
      text = fmt::format("convert_one<float>(convert_one<{}>({}))", type_name(value.rounded), text);
    if (refuses(value))
      check = fmt::format(
          "    if (refused<\"{}\">(v{})) {{\n"
          "      report(reinterpret_cast<Fault*>(a.word[{}]), int32_t(a.word[{}]), int64_t(v{}), i);\n"
          "      continue;\n    }}\n",
          value.op->name, value.operands[1], words_ - 2, words_ - 1, value.operands[1]);
    return check + fmt::format("    const {} v{} = {};\n", type_name(value.dtype), v, text);
  }

  std::string computed(size_t v) const {
    const TileValue& value = body_.values[v];
    const char* type = type_name(value.dtype);
    switch (value.kind) {
      case Kind::kInput:
        if (form_[size_t(value.index)] == 'n') return fmt::format("bits<{}>(a.word[{}])", type, 1 + value.index);
        return fmt::format("load<{}>(a.word[{}], {})", type, 1 + value.index, position(size_t(value.index)));
      case Kind::kConstant:
        return fmt::format("bits<{}>(a.word[{}])", type, number_[v]);
      case Kind::kConvert:
        return fmt::format("convert_one<{}>(v{})", type, value.operands[0]);
      default:
        return application(v);
    }
  }

  std::string application(size_t v) const {
    const TileValue& value = body_.values[v];
    std::string numbers, operands;
    for (size_t k = 0; k < param_count(value); ++k)
      numbers += fmt::format("{}bits<double>(a.word[{}])", k ? ", " : "", number_[v] + k);
    for (int k = 0; k < value.count; ++k) operands += fmt::format(", v{}", value.operands[k]);
    return fmt::format("apply<\"{}\">({{{}}}{})", value.op->name, numbers, operands);
  }

  std::string output(size_t k) const {
    const TileOutput& out = body_.outputs[k];
    const size_t operand = body_.inputs.size() + k;
    const char* type = type_name(out.dtype);
    std::string value = fmt::format("v{}", out.value);
    if (body_.values[size_t(out.value)].dtype != out.dtype) value = fmt::format("convert_one<{}>({})", type, value);
    return fmt::format("    {}store<{}>(a.word[{}], {}, {});\n", out.single ? "if (i == 0) " : "", type, 1 + operand,
                       position(operand), value);
  }

  const TileBody& body_;
  const std::string_view form_;
  const size_t operands_, words_;
  int rank_;
  size_t sizes_;                 // the word of the first size
  std::vector<size_t> strides_;  // of each operand, the word of its first stride
  std::vector<size_t> number_;   // of each value, the word of its first number
};

}  // namespace

bool cuda_refuses(const TileBody& body) { return std::any_of(body.values.begin(), body.values.end(), refuses); }

bool cuda_expresses(const TileBody& body) {
  size_t words = 3 + size_t(body.space.size());
  words += (body.inputs.size() + body.outputs.size()) * size_t(1 + body.space.size());
  each_number(body, [&](size_t, double, DType) { ++words; });
  return !body.reduction.op && words <= kMaxWords;
}

CudaCall::CudaCall(const TileBody& body, std::span<const View> in, std::span<const View> out, uint64_t numbers)
    : body_(body), operands_(in.size() + out.size()), sizes_(body.space), elements_(numel(body.space)) {
  words_.push_back(elements_);
  for (const std::span<const View> views : {in, out})
    for (const View& v : views) {
      words_.push_back(int64_t(reinterpret_cast<intptr_t>(v.data)));
      strides_.push_back(broadcast_strides(v.shape(), *v.strides, body.space));
    }
  for (size_t k = 0; k < in.size(); ++k)
    if (numbers >> k & 1) std::memcpy(&(words_[1 + k] = 0), in[k].data, size_t(size_of(in[k].dtype())));
  join_dims();
  describe(in, 0, numbers);
  describe(out, in.size(), 0);
  form_ += char('a' + sizes_.size());
  int64_t span = elements_;
  for (const Dims& strides : strides_) {
    int64_t reach = 0;
    for (int d = 0; d < sizes_.size(); ++d) reach += std::abs(strides[d]) * (sizes_[d] - 1);
    span = std::max(span, reach);
  }
  form_ += span >= INT32_MAX ? 'w' : 'n';
  for (int64_t size : sizes_) words_.push_back(size);
  for (size_t k = 0; k < operands_; ++k)
    if (form_[k] == 'g') words_.insert(words_.end(), strides_[k].begin(), strides_[k].end());
  each_number(body, [&](size_t, double number, DType dtype) {
    int64_t word = 0;
    store_number(dtype, &word, number);
    words_.push_back(word);
  });
  if (cuda_refuses(body)) words_.resize(words_.size() + 2);
}

void CudaCall::join_dims() {
  const auto joins = [&](int d) {
    return std::all_of(strides_.begin(), strides_.end(),
                       [&](const Dims& s) { return s[d] == s[d + 1] * sizes_[d + 1]; });
  };
  for (int d = sizes_.size() - 1; d >= 0 && sizes_.size() > 1; --d) {
    const bool last = d + 1 == sizes_.size();
    if (sizes_[d] != 1 && (last || !joins(d))) continue;
    const int gone = sizes_[d] == 1 ? d : d + 1;
    if (gone != d) sizes_[d] *= sizes_[d + 1];
    for (Dims& s : strides_) {
      if (gone != d) s[d] = s[d + 1];
      s.erase(gone);
    }
    sizes_.erase(gone);
  }
}

// n: a number; s: the same element for all positions; f: elements in the order of positions; g: any strides.
void CudaCall::describe(std::span<const View> views, size_t first, uint64_t numbers) {
  for (size_t k = 0; k < views.size(); ++k) {
    const Dims& strides = strides_[first + k];
    const bool single = std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
    form_ += numbers >> k & 1 ? 'n' : single || elements_ == 1 ? 's' : is_contiguous(sizes_, strides) ? 'f' : 'g';
  }
}

void CudaCall::set_fault(int64_t address, int64_t report) {
  words_[words_.size() - 2] = address;
  words_.back() = report;
}

std::string CudaCall::source(const std::string& name) const {
  return Printer(body_, form_, words_.size()).kernel(name);
}

}  // namespace pg
