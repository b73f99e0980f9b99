#include "tensor/kernels/cuda_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/kernels/cuda_printer.h"
#include "tensor/op.h"

namespace pg {
namespace {

using Kind = TileValue::Kind;

constexpr size_t kMaxWords = 440;    // of an argument, of which CUDA allows 4 KB; reductions add to it
constexpr int64_t kWidest = 8;       // elements that a thread takes at once
constexpr size_t kMostValues = 256;  // of a kernel, counting those of each element
constexpr int64_t kAccess = 16;      // bytes of the largest load

bool refuses_some(const TileValue& value) {
  return value.kind == Kind::kOp && value.op->has(kRefuses) && is_integer(value.compute);
}

std::vector<bool> needed_values(const TileBody& body) {
  std::vector<bool> needed(body.values.size(), false);
  for (const TileOutput& out : body.outputs) needed[size_t(out.value)] = true;
  for (const TileReduction& r : body.reductions) needed[size_t(r.value)] = true;
  for (size_t v = needed.size(); v-- > 0;)
    for (int k = 0; needed[v] && k < body.values[v].count; ++k) needed[size_t(body.values[v].operands[k])] = true;
  return needed;
}

}  // namespace

CudaBody::CudaBody(TileBody body)
    : tiles(std::move(body)),
      needed(needed_values(tiles)),
      refuses(std::any_of(tiles.values.begin(), tiles.values.end(), refuses_some)) {
  for (size_t v = 0; v < tiles.values.size(); ++v) {
    const TileValue& value = tiles.values[v];
    if (!needed[v]) continue;
    if (value.kind == Kind::kConstant) numbers.push_back({v, value.number, value.dtype});
    for (size_t k = 0; value.kind == Kind::kOp && k < cuda_param_count(value); ++k)
      numbers.push_back({v, value.params[k], DType::kFloat64});
  }
}

bool CudaBody::fits(int rank) const {
  const size_t operands = tiles.inputs.size() + tiles.outputs.size();
  return 3 + size_t(rank) + operands * size_t(1 + rank) + numbers.size() <= kMaxWords;
}

std::string CudaBody::key() const {
  std::string key = "body";
  for (const TileValue& v : tiles.values) {
    key += char('0' + int(v.kind));
    key += char('a' + int(v.dtype));
    key += char('a' + int(v.rounded));
    if (v.kind == Kind::kInput) key += std::to_string(v.index);
    if (v.kind == Kind::kOp) key += v.op->name, key += char('a' + int(v.compute));
    for (int k = 0; k < v.count; ++k) key += ',' + std::to_string(v.operands[k]);
  }
  for (const TileOutput& o : tiles.outputs)
    key += '>' + std::to_string(o.value) + char('a' + int(o.dtype)) + (o.single ? "1" : "");
  for (const TileReduction& r : tiles.reductions)
    key += '>' + std::to_string(r.value) + char('a' + int(r.dtype)) + r.op->name;
  return key + ':';
}

CudaCall::CudaCall(const CudaBody& body, const Dims& space, std::span<const View> in, std::span<const View> out,
                   uint64_t host, const double* numbers)
    : body_(body), operands_(in.size() + out.size()), sizes_(space), elements_(numel(space)) {
  words_.push_back(elements_);
  for (const std::span<const View> views : {in, out})
    for (const View& v : views) {
      words_.push_back(int64_t(reinterpret_cast<intptr_t>(v.data)));
      strides_.push_back(broadcast_strides(v.shape(), *v.strides, space));
    }
  join_dims();
  describe(in, 0, host);
  describe(out, in.size(), 0);
  width_ = choose_width();
  form_ += char('a' + sizes_.size());
  form_ += char('0' + width_);
  form_ += fits_in_32_bits() ? 'n' : 'w';
  for (size_t k = 0; k < in.size(); ++k)
    if (host >> k & 1) std::memcpy(&(words_[1 + k] = 0), in[k].data, size_t(size_of(in[k].dtype())));
  for (int64_t size : sizes_) words_.push_back(size);
  for (size_t k = 0; k < operands_; ++k)
    if (form_[k] == 'g')
      for (int64_t stride : strides_[k]) words_.push_back(stride);
  for (size_t k = 0; k < body.numbers.size(); ++k) {
    int64_t word = 0;
    store_number(body.numbers[k].dtype, &word, numbers ? numbers[k] : body.numbers[k].number);
    words_.push_back(word);
  }
  for (int k = 0; body.refuses && k < 2; ++k) words_.push_back(0);
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
void CudaCall::describe(std::span<const View> views, size_t first, uint64_t host) {
  for (size_t k = 0; k < views.size(); ++k) {
    const Dims& strides = strides_[first + k];
    const bool single = std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
    form_ += host >> k & 1 ? 'n' : single || elements_ == 1 ? 's' : is_contiguous(sizes_, strides) ? 'f' : 'g';
  }
}

bool CudaCall::fits_in_32_bits() const {
  int64_t span = elements_;
  for (const Dims& strides : strides_) {
    int64_t reach = 0;
    for (int d = 0; d < sizes_.size(); ++d) reach += std::abs(strides[d]) * (sizes_[d] - 1);
    span = std::max(span, reach);
  }
  return span < INT32_MAX;
}

// How many elements a thread takes at once: those of the largest access to an operand of the widest elements. All
// operands in the order of positions have to be aligned to it. A group does not cross the end of the last dim, so that
// its elements are one stride apart in the others.
int CudaCall::choose_width() const {
  if (body_.refuses || !body_.tiles.reductions.empty()) return 1;
  int64_t widest = 0;
  for (size_t k = 0; k < operands_; ++k)
    if (form_[k] == 'f') widest = std::max<int64_t>(widest, size_of(body_.operand_dtype(k)));
  if (widest == 0) return 1;
  int64_t width = std::min(kAccess / widest, kWidest);
  while (width > 1 && size_t(width) * body_.tiles.values.size() > kMostValues) width /= 2;
  for (size_t k = 0; k < operands_; ++k) {
    if (form_[k] == 'f' && words_[1 + k] % (width * size_of(body_.operand_dtype(k))) != 0) return 1;
    if (form_[k] == 'g' && sizes_.back() % width != 0) return 1;
  }
  return int(width);
}

void CudaCall::set_fault(int64_t address, int64_t report) {
  words_[words_.size() - 2] = address;
  words_.back() = report;
}

std::string CudaCall::kernel(const std::string& name) const {
  return CudaPrinter(body_, form_, words_.size()).kernel(name);
}

std::string CudaCall::element() const { return CudaPrinter(body_, form_, words_.size()).element(); }

}  // namespace pg
