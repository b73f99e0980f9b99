// Kernels of the shape family. Almost all are blocks of one strided copy.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/arguments.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/index.h"
#include "tensor/cpu/move/runs_simd.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
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

// The position in the source for position `o` of a padded dim, or -1 for outside.
int64_t pad_source(const std::string& mode, const PadRange& range, int64_t o) {
  const int64_t s = o - range.before;
  if (s >= range.first && s < range.end) return s;
  if (mode == "constant") return -1;
  if (mode == "replicate") return s < 0 ? 0 : range.end - 1;
  if (mode == "reflect") return s < 0 ? -s : 2 * (range.end - 1) - s;
  return s + (s < range.first ? 1 : -1) * (range.end - range.first);
}

// The sources of the positions of a padded dim: position - shift from lo to hi, and a table for those before and after.
struct PadDim {
  int64_t size, lo, hi, shift;
  WorkVector<int64_t> margins;

  PadDim(const std::string& mode, const PadRange& range, int64_t padded)
      : size(padded),
        lo(std::clamp<int64_t>(range.before + range.first, 0, padded)),
        hi(std::clamp<int64_t>(range.before + range.end, lo, padded)),
        shift(range.before) {
    margins.reserve(size_t(lo + size - hi));
    for (int64_t o = 0; o < lo; ++o) margins.push_back(pad_source(mode, range, o));
    for (int64_t o = hi; o < size; ++o) margins.push_back(pad_source(mode, range, o));
  }
  bool padded() const { return shift != 0 || !margins.empty(); }
  int64_t source(int64_t o) const {
    if (o >= lo && o < hi) return o - shift;
    return margins[size_t(o < lo ? o : lo + o - hi)];
  }
};

// Maps the rows (runs of the last dim) of a padded tensor to the rows of its source. Dims without padding are merged.
struct PadMap {
  std::vector<PadDim> dims;
  Dims strides;  // of the source

  PadMap(const KernelArgs& a, const Dims& source, const Dims& source_strides, const Dims& padded) {
    for (int d = 0; d < source.size(); ++d) {
      PadDim dim(a.attr<std::string>("mode"), PadRange(a, d, source.size(), source[d]), padded[d]);
      const bool merges = !dims.empty() && d + 1 < source.size() && !dims.back().padded() && !dim.padded() &&
                          strides.back() == source_strides[d] * dim.size;
      if (merges) {
        dim.hi = dim.size *= dims.back().size;
        dims.pop_back();
        strides.pop_back();
      }
      dims.push_back(std::move(dim));
      strides.push_back(source_strides[d]);
    }
  }
  int64_t row_size() const { return dims.back().size; }
  int64_t row_count() const {
    int64_t n = row_size() ? 1 : 0;
    for (size_t d = 0; d + 1 < dims.size(); ++d) n *= dims[d].size;
    return n;
  }
  // Returns the offset of the source row, or -1 when the row is outside.
  int64_t source_row(int64_t row) const {
    int64_t offset = 0;
    for (int d = int(dims.size()) - 2; d >= 0; --d) {
      const PadDim& dim = dims[size_t(d)];
      const int64_t s = dim.source(row % dim.size);
      if (s < 0) return -1;
      offset += s * strides[d];
      row /= dim.size;
    }
    return offset;
  }
  // The number of rows from `row` on, at most `most`, whose source rows follow each other in the last dim but one.
  int64_t together(int64_t row, int64_t most) const {
    if (dims.size() < 2) return 1;
    const PadDim& dim = dims[dims.size() - 2];
    const int64_t first = row % dim.size;
    return first >= dim.lo && first < dim.hi ? std::min(most, dim.hi - first) : 1;
  }
};

// Fills padded rows, those together whose sources follow each other.
template <class T>
class RowPadder {
 public:
  RowPadder(const PadMap& map, const T* in, T* out, T value) : map_(map), in_(in), out_(out), value_(value) {
    if (last_.hi > last_.lo) copy_ = runs_copier<T>(last_.hi - last_.lo, step_);
  }

  void run() const {
    const int64_t most = (16 << 10) / (n_ * int64_t(sizeof(T))) + 1;  // rows that stay in the cache
    parallel_for(map_.row_count(), shared_grain(n_ * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin, count; row < end; row += count) {
        count = map_.together(row, std::min(most, end - row));
        const int64_t offset = map_.source_row(row);
        T* const to = out_ + row * n_;
        if (offset < 0)
          std::fill_n(to, count * n_, value_);
        else
          fill(in_ + offset, to, count);
      }
    });
  }

 private:
  void fill(const T* from, T* to, int64_t count) const {
    const auto& [n, lo, hi, shift, margins] = last_;
    margin(from, to, lo, margins.data(), count);
    if (copy_) copy_(hi - lo, count, from + (lo - shift) * step_, step_, row_step_, to + lo, n);
    margin(from, to + hi, n - hi, margins.data() + lo, count);
  }

  // Fills `width` columns from their sources, which are all outside or all inside.
  void margin(const T* from, T* to, int64_t width, const int64_t* sources, int64_t count) const {
    if (width == 0) return;
    if (*sources < 0) return runs_copier<T>(width, 0)(width, count, &value_, 0, 0, to, n_);
    for (int64_t r = 0; r < count; ++r, from += row_step_, to += n_)
      for (int64_t i = 0; i < width; ++i) to[i] = from[sources[i] * step_];
  }

  const PadMap& map_;
  const PadDim& last_ = map_.dims.back();
  const T* const in_;
  T* const out_;
  const T value_;
  const int64_t n_ = last_.size, step_ = map_.strides.back();
  const int64_t row_step_ = map_.strides.size() > 1 ? map_.strides[map_.strides.size() - 2] : 0;
  CopyRuns<T> copy_ = nullptr;  // of the columns between the margins; null: there are none
};

void pad_kernel(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  if (out.rank() == 0) return copy_strided(in, out.data);
  const PadMap map(a, in.shape(), *in.strides, out.shape());
  visit_size(size_of(in.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T value;
    store_number(in.dtype(), &value, a.attr<double>("value"));
    RowPadder<T>(map, in.as<T>(), out.as<T>(), value).run();
  });
}

template <class T>
void pad_backward_rows(const PadMap& map, const View& dy, T* out, int64_t begin, int64_t end, auto load) {
  const PadDim& dim = map.dims.back();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t offset = map.source_row(row), at = row * dim.size;
    if (offset < 0) continue;
    const auto add_margin = [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        if (const int64_t s = dim.source(i); s >= 0) out[offset + s] += load(dy, at + i);
    };
    add_margin(0, dim.lo);
    for (int64_t i = dim.lo; i < dim.hi; ++i) out[offset + i - dim.shift] += load(dy, at + i);
    add_margin(dim.hi, dim.size);
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
    parallel_for(apart, shared_grain(rows * map.row_size() * int64_t(sizeof(float))),
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
  parallel_for(in.numel() / columns, shared_grain(columns * size), [&](int64_t begin, int64_t end) {
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
