// Kernels of the shape family. Almost all are blocks of one strided copy.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/arguments.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

void* at(const View& v, int64_t offset) { return v.as<char>() + offset * size_of(v.dtype()); }

void copy_kernel(const KernelArgs& a) { copy_strided(a.in[0], a.out[0].data); }

void cat_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  int64_t offset = 0;
  for (const View& in : a.in) {
    assign_block(in, out.dtype(), in.shape(), at(out, offset * (*out.strides)[d]), *out.strides);
    offset += in.size(d);
  }
}

void stack_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  Dims strides = *out.strides;
  strides.erase(d);
  for (size_t i = 0; i < a.in.size(); ++i)
    assign_block(a.in[i], out.dtype(), a.in[i].shape(), at(out, int64_t(i) * (*out.strides)[d]), strides);
}

void flip_kernel(const KernelArgs& a) {
  const View& in = a.in[0];
  const Dims dims = in.rank() && !a.attr<Ints>("dims").empty() ? a.dims("dims", in.rank()) : Dims();
  if (in.numel() == 0) return;
  Dims strides = *in.strides;
  int64_t offset = 0;
  for (int64_t d : dims) {
    offset += (in.size(int(d)) - 1) * strides[int(d)];
    strides[int(d)] = -strides[int(d)];
  }
  copy_block(size_of(in.dtype()), in.shape(), at(in, offset), strides, a.out[0].data, *a.out[0].strides);
}

// Copies the block of `shape` at the two offsets. Splits it in two along each of the dims from d on that move.
void roll_blocks(const View& in, const View& out, const Dims& shifts, int d, Dims shape, int64_t from, int64_t to) {
  while (d < shape.size() && shifts[d] == 0) ++d;
  if (d == shape.size())
    return copy_block(size_of(in.dtype()), shape, at(in, from), *in.strides, at(out, to), *out.strides);
  const int64_t rest = shape[d] - shifts[d];
  shape[d] = rest;
  roll_blocks(in, out, shifts, d + 1, shape, from, to + shifts[d] * (*out.strides)[d]);
  shape[d] = shifts[d];
  roll_blocks(in, out, shifts, d + 1, shape, from + rest * (*in.strides)[d], to);
}

void roll_kernel(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  const int64_t n = in.numel();
  if (n == 0) return;
  if (!a.attr<Ints>("dims").empty()) return roll_blocks(in, out, roll_shifts(a, in.shape()), 0, in.shape(), 0, 0);
  const Ints& shifts = a.attr<Ints>("shifts");
  const int64_t shift = shifts.empty() ? 0 : (shifts[0] % n + n) % n, size = size_of(in.dtype());
  copy_bytes(at(out, shift), in.data, (n - shift) * size);
  copy_bytes(out.data, at(in, n - shift), shift * size);
}

// For each position of a padded dim, returns the position in the source, or -1 for outside.
WorkVector<int64_t> pad_table(const std::string& mode, const PadRange& range, int64_t out_size) {
  WorkVector<int64_t> table(static_cast<size_t>(out_size));
  for (int64_t o = 0; o < out_size; ++o) {
    int64_t s = o - range.before;
    if (s < range.first || s >= range.end) {
      if (mode == "constant")
        s = -1;
      else if (mode == "replicate")
        s = s < 0 ? 0 : range.end - 1;
      else if (mode == "reflect")
        s = s < 0 ? -s : 2 * (range.end - 1) - s;
      else
        s += (s < range.first ? 1 : -1) * (range.end - range.first);
    }
    table[size_t(o)] = s;
  }
  return table;
}

// Maps the rows (runs of the last dim) of a padded tensor to the rows of its source.
struct PadMap {
  std::vector<WorkVector<int64_t>> tables;  // one per dim
  Dims strides, shape;                      // strides of the source, shape of the padded tensor
  int64_t lo = 0, hi = 0, shift = 0;        // in a row, positions lo to hi come from position - shift

  PadMap(const KernelArgs& a, const Dims& source, const Dims& source_strides, const Dims& padded)
      : strides(source_strides), shape(padded) {
    for (int d = 0; d < source.size(); ++d) {
      const PadRange range(a, d, source.size(), source[d]);
      tables.push_back(pad_table(a.attr<std::string>("mode"), range, padded[d]));
      if (d + 1 < source.size()) continue;
      shift = range.before;
      lo = std::clamp<int64_t>(range.before + range.first, 0, padded[d]);
      hi = std::clamp<int64_t>(range.before + range.end, lo, padded[d]);
    }
  }
  int64_t row_size() const { return shape.back(); }
  int64_t row_count() const { return row_size() ? numel(shape) / row_size() : 0; }
  // Returns the offset of the source row, or -1 when the row is outside.
  int64_t source_row(int64_t row) const {
    int64_t offset = 0;
    for (int d = shape.size() - 2; d >= 0; --d) {
      const int64_t s = tables[size_t(d)][size_t(row % shape[d])];
      if (s < 0) return -1;
      offset += s * strides[d];
      row /= shape[d];
    }
    return offset;
  }
};

template <class T>
void pad_rows(const PadMap& map, const T* in, T* out, T value) {
  const int64_t n = map.row_size(), step = map.strides.back();
  const int64_t* table = map.tables.back().data();
  auto outside = [&](const T* from, T* to, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = table[i] < 0 ? value : from[table[i] * step];
  };
  parallel_for(map.row_count(), (64 << 10) / (n * int64_t(sizeof(T))) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = out + row * n;
      const int64_t offset = map.source_row(row);
      if (offset < 0) {
        std::fill_n(to, n, value);
        continue;
      }
      const T* from = in + offset;
      outside(from, to, 0, map.lo);
      if (step == 1)
        std::copy(from + map.lo - map.shift, from + map.hi - map.shift, to + map.lo);
      else
        outside(from, to, map.lo, map.hi);
      outside(from, to, map.hi, n);
    }
  });
}

void pad_kernel(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  if (out.rank() == 0) return copy_strided(in, out.data);
  const PadMap map(a, in.shape(), *in.strides, out.shape());
  visit_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T value;
    store_number(in.dtype(), &value, a.attr<double>("value"));
    pad_rows(map, in.as<T>(), out.as<T>(), value);
  });
}

template <class T>
void pad_backward_rows(const PadMap& map, const View& dy, T* out, int64_t begin, int64_t end, auto load) {
  const int64_t n = map.row_size();
  const int64_t* table = map.tables.back().data();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t offset = map.source_row(row);
    if (offset < 0) continue;
    for (int64_t i = 0; i < n; ++i)
      if (table[i] >= 0) out[offset + table[i]] += load(dy, row * n + i);
  }
}

void pad_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  if (out.rank() == 0) return copy_strided(dy, out.data);
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  if (dy.numel() == 0 || out.numel() == 0) return;
  const PadMap map(a, out.shape(), *out.strides, dy.shape());
  const Ints& pad = a.attr<Ints>("pad");
  int64_t apart = 1;  // product of the leading dims without padding; their rows have different sources
  for (int d = 0; d < out.rank() - int(pad.size() / 2) && d < out.rank() - 1; ++d) apart *= out.size(d);
  const int64_t rows = map.row_count() / apart;
  auto run = [&](auto* sums, auto load) {
    parallel_for(apart, (16 << 10) / (rows * map.row_size()) + 1,
                 [&](int64_t begin, int64_t end) { pad_backward_rows(map, dy, sums, begin * rows, end * rows, load); });
  };
  if (out.dtype() == DType::kFloat32)
    return run(out.as<float>(), [](const View& v, int64_t i) { return v.as<float>()[i]; });
  if (out.dtype() == DType::kFloat64)
    return run(out.as<double>(), [](const View& v, int64_t i) { return v.as<double>()[i]; });
  WorkVector<float> sums(size_t(out.numel()), 0.0f);
  run(sums.data(), [](const View& v, int64_t i) { return float(load_number(v.dtype(), v.as<char>() + 2 * i)); });
  convert(DType::kFloat32, sums.data(), out.dtype(), out.data, out.numel());
}

void slice_backward_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const Slice block(a, out);
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  copy_block(size_of(out.dtype()), block.shape, a.in[0].data, *a.in[0].strides, at(out, block.offset), block.strides);
}

void slice_assign_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const Slice block(a, out);
  if (out.data != a.in[0].data) copy_strided(a.in[0], out.data);
  if (numel(block.shape) > 0) assign_block(a.in[1], out.dtype(), block.shape, at(out, block.offset), block.strides);
}

void diagonal_backward_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const int rows = a.dim("dim1", out.rank()), columns = a.dim("dim2", out.rank());
  const int64_t offset = a.attr<int64_t>("offset");
  const Dims& all = *out.strides;
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  if (a.in[0].numel() == 0) return;
  Dims strides = all;
  strides.erase(std::max(rows, columns));
  strides.erase(std::min(rows, columns));
  strides.push_back(all[rows] + all[columns]);
  copy_block(size_of(out.dtype()), a.in[0].shape(), a.in[0].data, *a.in[0].strides,
             at(out, offset < 0 ? -offset * all[rows] : offset * all[columns]), strides);
}

// Keeps columns [0, row + diagonal] of each row (`lower`), or the columns from row + diagonal on.
template <bool lower>
void triangle_kernel(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  const int64_t rows = in.size(in.rank() - 2), columns = in.size(in.rank() - 1), size = size_of(in.dtype());
  if (in.numel() == 0) return;
  const int64_t diagonal = a.attr<int64_t>("diagonal") + (lower ? 1 : 0);
  parallel_for(in.numel() / columns, (64 << 10) / (columns * size) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t cut = std::clamp<int64_t>(i % rows + diagonal, 0, columns) * size, row = i * columns * size;
      char* to = out.as<char>() + row;
      const char* from = in.as<char>() + row;
      const int64_t kept = lower ? 0 : cut, kept_end = lower ? cut : columns * size;
      std::memset(lower ? to + cut : to, 0, size_t(lower ? columns * size - cut : cut));
      std::memcpy(to + kept, from + kept, size_t(kept_end - kept));
    }
  });
}

}  // namespace

void add_shape_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"reshape", copy_kernel, kStridedInputs},
      {"reshape_to", copy_kernel, kStridedInputs},
      {"reshape_as", copy_kernel, kStridedInputs},
      {"flatten", copy_kernel, kStridedInputs},
      {"contiguous", copy_kernel, kStridedInputs},
      {"cat", cat_kernel, kStridedInputs},
      {"stack", stack_kernel, kStridedInputs},
      {"flip", flip_kernel, kStridedInputs},
      {"roll", roll_kernel},
      {"pad", pad_kernel, kStridedInputs},
      {"pad_backward", pad_backward_kernel},
      {"slice_backward", slice_backward_kernel, kStridedInputs},
      {"slice_assign", slice_assign_kernel, kStridedInputs},
      {"diagonal_backward", diagonal_backward_kernel, kStridedInputs},
      {"tril", triangle_kernel<true>},
      {"triu", triangle_kernel<false>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
