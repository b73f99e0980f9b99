#include "tensor/arguments.h"

#include <algorithm>

#include "tensor/op.h"

namespace pg {

uint32_t dim_mask(const KernelArgs& a) {
  const int rank = a.in[0].rank();
  if (const auto* one = std::get_if<int64_t>(&AttrReader(a.op, a.attrs).raw("dim")))
    return 1u << dim_index(a.op.name, "dim", *one, rank);
  uint32_t mask = 0;
  for (int64_t d : a.dims("dim", rank)) mask |= 1u << d;
  return mask;
}

int64_t masked_numel(const View& v, uint32_t mask) {
  int64_t n = 1;
  for (int d = 0; d < v.rank(); ++d)
    if (mask >> d & 1) n *= v.size(d);
  return n;
}

Slice::Slice(const KernelArgs& a, const View& whole) {
  const Ints &start = a.attr<Ints>("start"), &length = a.attr<Ints>("length"), &step = a.attr<Ints>("step"),
             &drop = a.attr<Ints>("drop");
  for (int d = 0; d < whole.rank(); ++d) {
    const int64_t stride = (*whole.strides)[d], size = whole.size(d), by = step[size_t(d)];
    const int64_t first = start[size_t(d)] < 0 ? start[size_t(d)] + size : start[size_t(d)];
    offset += first * stride;
    if (drop[size_t(d)]) continue;
    const int64_t given = length[size_t(d)];
    shape.push_back(given == -1 ? std::max<int64_t>(0, size - first + by - 1) / by : given);
    strides.push_back(by * stride);
  }
}

Dims roll_shifts(const KernelArgs& a, const Dims& shape) {
  const Ints &shifts = a.attr<Ints>("shifts"), &dims = a.attr<Ints>("dims");
  Dims out(shape.size(), 0);
  for (size_t i = 0; i < dims.size() && !shape.empty(); ++i) {
    const int d = dim_index(a.op.name, "dims", dims[i], shape.size());
    if (shape[d] > 0) out[d] = (out[d] + shifts[i] % shape[d] + shape[d]) % shape[d];
  }
  return out;
}

PadRange::PadRange(const KernelArgs& a, int d, int rank, int64_t size) : end(size) {
  const Ints& pad = a.attr<Ints>("pad");
  const size_t i = size_t(rank - 1 - d) * 2;
  if (i >= pad.size()) return;
  before = pad[i];
  if (a.attr<std::string>("mode") != "circular") return;
  first = std::max<int64_t>(0, -before);
  end = size + std::min<int64_t>(0, pad[i + 1]);
}

const InputDef& definition_of(const KernelArgs& a, size_t input) {
  return a.op.inputs[size_t(input_definition(a.op, a.in.size(), input))];
}

std::string place_in_list(const KernelArgs& a, size_t input) {
  const InputDef& def = definition_of(a, input);
  if (def.arity != Arity::kList) return "";
  size_t first = input;
  while (first > 0 && &definition_of(a, first - 1) == &def) --first;
  return fmt::format(" of tensor {}", input - first + 1);
}

std::string position_text(const Dims& shape, int64_t i) {
  if (shape.size() < 2) return std::to_string(i + 1);
  std::string text;
  for (int d = shape.size() - 1; d >= 0; --d) {
    text = std::to_string(i % shape[d] + 1) + (text.empty() ? "" : ", ") + text;
    i /= shape[d];
  }
  return "{" + text + "}";
}

}  // namespace pg
