// Kernels of the index family. They check every index value before they write anything.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tensor/arguments.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/move/index_simd.h"
#include "tensor/cpu/move/row_sums.h"
#include "tensor/cpu/move/scatter.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/cpu/wrap.h"

namespace pg {
namespace cpu {

namespace {

// Whether all values of an index are positions. Looks at values that a stride of 0 repeats once.
bool fit_between(const View& index, int64_t low, int64_t high, int64_t negative_low) {
  Type type = *index.type;
  for (int d = 0; d < index.rank(); ++d)
    if ((*index.strides)[d] == 0) type.shape[d] = std::min<int64_t>(type.shape[d], 1);
  const View once{&type, index.strides, index.data};
  WorkVector<char> copy;
  const void* data = once.data;
  if (!is_contiguous(type.shape, *once.strides)) {
    copy.resize(size_t(once.numel() * size_of(once.dtype())));
    copy_strided(once, copy.data());
    data = copy.data();
  }
  std::atomic<bool> fine{true};
  const int64_t size = size_of(index.dtype());
  parallel_for(once.numel(), 64 << 10, [&](int64_t begin, int64_t end) {
    const char* const values = static_cast<const char*>(data) + begin * size;
    if (!all_inside(index.dtype(), values, end - begin, low, high, negative_low)) fine = false;
  });
  return fine;
}

}  // namespace

void check_positions(const KernelArgs& a, size_t input, int64_t size, bool negative) {
  check_positions(a, input, size, negative, a.op.name, definition_of(a, input).name);
}

void check_positions(const KernelArgs& a, size_t input, int64_t size, bool negative, const char* op,
                     const char* argument) {
  const View& index = a.in[input];
  const int64_t low = a.attr<int64_t>("index_base"), high = size - 1 + low, negative_low = negative ? -size : 0;
  if (fit_between(index, low, high, negative_low)) return;
  WorkVector<int64_t> values(size_t(index.numel()));
  assign_block(index, DType::kInt64, index.shape(), values.data(), contiguous_strides(index.shape()));
  int64_t i = 0;
  while (all_inside(DType::kInt64, &values[size_t(i)], 1, low, high, negative_low)) ++i;
  const std::string range = size == 0 ? "no index values: the dim is empty"
                                      : fmt::format("index values from {} to {}{}", low, high,
                                                    negative ? fmt::format(" or -{} to -1", size) : "");
  const bool counts_from_0 = values[size_t(i)] == 0 && low == 1;
  bad_argument(
      op, argument, range,
      fmt::format("{} at position {}{}{}", values[size_t(i)], position_text(index.shape(), i), place_in_list(a, input),
                  counts_from_0 ? "; indices count from 1 (index_base = 0: from 0)" : ""));
}

}  // namespace cpu

namespace {

using namespace cpu;

// A run of elements. By value: a store of a byte could change whatever is not a local variable.
template <class T, class P>
void gather_run(T* to, const T* from, int64_t x_step, int64_t step, P position, int64_t index_step, int64_t n) {
  if (index_step == 1 && x_step == 0 && step == 1) {
    for (int64_t j = 0; j < n; ++j) to[j] = from[position(j)];
  } else if (index_step == 1 && x_step == 1) {
    for (int64_t j = 0; j < n; ++j) to[j] = from[j + position(j) * step];
  } else {
    for (int64_t j = 0; j < n; ++j) to[j] = from[j * x_step + position(j * index_step) * step];
  }
}

template <class T, class P>
void gather_rows(const Along& along, const T* x, const Dims& index_strides, P position, T* out) {
  const int64_t x_step = along.strides.back(), index_step = index_strides.back();
  parallel_for(along.rows, shared_grain(along.row * int64_t(sizeof(int64_t))), [&](int64_t begin, int64_t end) {
    RowWalk<2> walk(along.shape, {along.strides, index_strides}, begin);
    for (int64_t r = begin; r < end; ++r, walk.next()) {
      const T* from = x + walk.offset[0];
      T* to = out + r * along.row;
      if (index_step == 0 && x_step == 1)
        std::copy_n(from + position(walk.offset[1]) * along.step, along.row, to);
      else
        gather_run(to, from, x_step, along.step, position.from(walk.offset[1]), index_step, along.row);
    }
  });
}

void gather_along(const KernelArgs& a, const Dims& shape, int d, const Dims& x_strides, int64_t size,
                  const Dims& index_strides) {
  const View &x = a.in[0], &out = a.out[0];
  check_positions(a, 1, size, true);
  if (out.numel() == 0) return;
  const Along along(shape, x_strides, d);
  visit_size(size_of(x.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_positions(a, 1, size,
                   [&](auto position) { gather_rows(along, x.as<T>(), index_strides, position, out.as<T>()); });
  });
}

void gather_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1];
  const int d = a.dim("dim", x.rank());
  gather_along(a, index.shape(), d, *x.strides, x.size(d), *index.strides);
}

void take_along_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  if (!a.has_attr("dim")) return gather_along(a, out.shape(), 0, {1}, x.numel(), {1});
  const int d = a.dim("dim", x.rank());
  Dims x_shape = x.shape();
  x_shape[d] = 1;
  Dims x_strides = broadcast_strides(x_shape, *x.strides, out.shape());
  x_strides[d] = (*x.strides)[d];
  gather_along(a, out.shape(), d, x_strides, x.size(d), broadcast_strides(index.shape(), *index.strides, out.shape()));
}

void pick_kernel(const KernelArgs& a) {
  const View& x = a.in[0];
  const int d = a.dim("dim", x.rank());
  Dims shape = x.shape();
  shape[d] = 1;
  gather_along(a, shape, d, *x.strides, x.size(d), contiguous_strides(shape));
}

// Whether 16-bit elements are summed in float32 copies of all arrays: where several of them may go to one place of an
// output that is not large beside the index. A float32 run is not asked again.
bool sums_in_copies(const KernelArgs& a, int d) {
  const View &index = a.in[1], &out = a.out[0];
  return is_half(out.dtype()) && index.size(d) > 1 && 4 * index.numel() >= out.numel();
}

// Adds a few elements of 16 bits to a large output, in float32.
void add_few_halves(const KernelArgs& a, int d, const void* src, const Dims& src_strides) {
  const View &index = a.in[1], &out = a.out[0];
  const Along along(index.shape(), *out.strides, d);
  WorkVector<int64_t> places(size_t(index.numel()), 0);
  WorkVector<uint16_t> values(places.size(), 0);
  with_positions(a, 1, out.size(d), [&](auto position) {
    RowWalk<3> walk(along.shape, {along.strides, *index.strides, src_strides}, 0);
    Poller poll;
    size_t k = 0;
    for (int64_t r = 0; r < along.rows; ++r, walk.next(), poll(along.row))
      for (int64_t j = 0; j < along.row; ++j, ++k) {
        const int64_t at = position(walk.offset[1] + j * index.strides->back());
        places[k] = walk.offset[0] + j * along.strides.back() + at * along.step;
        values[k] = static_cast<const uint16_t*>(src)[walk.offset[2] + j * src_strides.back()];
      }
  });
  add_rows(out.dtype(), Lines({out.numel()}, 0), places, values.data(), out.data, 1);
}

// Adds src into out; src is indexed like the index.
void add_scattered(const KernelArgs& a, int d, const void* src, const Dims& src_strides) {
  const View &index = a.in[1], &out = a.out[0];
  if (index.numel() == 0) return;
  if (is_half(out.dtype()) && index.size(d) > 1) return add_few_halves(a, d, src, src_strides);
  const Along along(index.shape(), *out.strides, d);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_positions(a, 1, out.size(d), [&](auto position) {
      scatter_rows(along, out.as<T>(), *index.strides, position, static_cast<const T*>(src), src_strides,
                   [](T& to, T from) { to = wrapped_sum(to, from); });
    });
  });
}

void scatter_add_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &src = a.in[2], &out = a.out[0];
  const int d = a.dim("dim", x.rank());
  if (sums_in_copies(a, d)) return run_widened(a, scatter_add_kernel);
  check_positions(a, 1, x.size(d), true);
  if (out.data != x.data) copy_strided(x, out.data);
  const Converted value(src, out.dtype());
  add_scattered(a, d, value.data, src_strides_of(src, value, index.shape()));
}

void gather_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  const int d = a.dim("dim", out.rank());
  if (sums_in_copies(a, d)) return run_widened(a, gather_backward_kernel);
  check_positions(a, 1, out.size(d), true);
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  add_scattered(a, d, dy.data, *dy.strides);
}

void scatter_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &src = a.in[2], &out = a.out[0];
  const int d = a.dim("dim", x.rank());
  check_positions(a, 1, x.size(d), true);
  if (out.data != x.data) copy_strided(x, out.data);
  if (index.numel() == 0) return;
  const Converted value(src, out.dtype());
  const Dims strides = src_strides_of(src, value, index.shape());
  const Along along(index.shape(), *out.strides, d);
  visit_size(size_of(out.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_positions(a, 1, x.size(d), [&](auto position) {
      scatter_rows(along, out.as<T>(), *index.strides, position, static_cast<const T*>(value.data), strides,
                   [](T& to, T from) { to = from; });
    });
  });
}

// out[o][j] = x[o][position(j)], for rows of `bytes` bytes.
template <class P>
void select_rows(const Lines& x, int64_t count, P position, const char* from, char* to, int64_t bytes) {
  parallel_for(x.outer * count, shared_grain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * bytes, from + (i / count * x.n + position(i % count)) * bytes, size_t(bytes));
  });
}

constexpr int64_t kManyLines = 8;

// Elements of many lines: positions are resolved once, and few of them are taken one after the other, each of all lines
// of a block.
template <class T, class P>
void select_in_lines(const Lines& x, int64_t count, P position, const T* from, T* to) {
  WorkVector<int64_t> at(static_cast<size_t>(count));
  for (int64_t j = 0; j < count; ++j) at[size_t(j)] = position(j);
  const int64_t* const places = at.data();
  constexpr int64_t kFew = 8;
  parallel_for(x.outer, shared_grain(count * int64_t(sizeof(int64_t))), [&](int64_t begin, int64_t end) {
    if (count > kFew)
      for (int64_t o = begin; o < end; ++o)
        for (int64_t j = 0; j < count; ++j) to[o * count + j] = from[o * x.n + places[j]];
    else
      for (int64_t block = begin; block < end; block += 64)
        for (int64_t j = 0; j < count; ++j)
          for (int64_t o = block; o < std::min(block + 64, end); ++o) to[o * count + j] = from[o * x.n + places[j]];
  });
}

// The same for single elements.
template <class T, class P>
void select_elements(const Lines& x, int64_t count, P position, const T* from, T* to) {
  if (x.outer >= kManyLines && count <= kGrain) return select_in_lines(x, count, position, from, to);
  parallel_for(x.outer * count, shared_grain(sizeof(int64_t)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t o = i / count, stop = std::min(end, (o + 1) * count);
      for (; i < stop; ++i) to[i] = from[o * x.n + position(i - o * count)];
    }
  });
}

void select_positions(const KernelArgs& a, size_t x_input, size_t index_input, const Lines& x, bool negative) {
  const View& out = a.out[0];
  check_positions(a, index_input, x.n, negative);
  if (out.numel() == 0) return;
  const int size = size_of(out.dtype());
  const int64_t count = a.in[index_input].numel();
  with_positions(a, index_input, x.n, [&](auto position) {
    if (x.inner > 1)
      return select_rows(x, count, position, a.in[x_input].template as<char>(), out.as<char>(), x.inner * size);
    visit_size(size, [&](auto tag) {
      using T = typename decltype(tag)::type;
      select_elements(x, count, position, a.in[x_input].template as<T>(), out.as<T>());
    });
  });
}

void index_select_kernel(const KernelArgs& a) {
  select_positions(a, 0, 1, Lines(a.in[0].shape(), a.dim("dim", a.in[0].rank())), true);
}
void take_kernel(const KernelArgs& a) { select_positions(a, 0, 1, Lines({a.in[0].numel()}, 0), true); }
void embedding_kernel(const KernelArgs& a) { select_positions(a, 1, 0, Lines(a.in[1].shape(), 0), false); }

// out[position(j)] += alpha * src[j]
template <class T, class P>
void add_elements(int64_t count, P position, const T* src, T* out, T alpha) {
  in_polled_blocks(count, 64 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      T& to = out[position(j)];
      to = wrapped_sum(to, wrapped_product(src[j], alpha));
    }
  });
}

// out[o][position(j)] += alpha * src[o][j], for narrow rows.
template <class T, class P>
void add_narrow_rows(const Lines& x, int64_t count, P position, const T* src, T* out, T alpha) {
  const auto add = [&](int64_t o) {
    if (x.inner == 1) return add_elements(count, position, src + o * count, out + o * x.n, alpha);
    Poller poll;
    for (int64_t j = 0; j < count; ++j, poll(x.inner)) {
      const T* from = src + (o * count + j) * x.inner;
      T* to = out + (o * x.n + position(j)) * x.inner;
      for (int64_t k = 0; k < x.inner; ++k) to[k] = wrapped_sum(to[k], wrapped_product(from[k], alpha));
    }
  };
  parallel_for(x.outer, kGrain / (count * x.inner) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) add(o);
  });
}

// The positions that an index input names.
WorkVector<int64_t> positions_of(const KernelArgs& a, size_t input, int64_t size) {
  WorkVector<int64_t> positions(size_t(a.in[input].numel()), 0);
  with_positions(a, input, size, [&](auto position) {
    in_polled_blocks(int64_t(positions.size()), 64 << 10, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) positions[size_t(j)] = position(j);
    });
  });
  return positions;
}

// Whether 16-bit rows are summed in float32 copies: where they are too narrow to be summed in groups, and the output is
// not large beside them. A float32 run is not asked again.
bool sums_in_copies(const KernelArgs& a, const Lines& x) {
  const View& out = a.out[0];
  return is_half(out.dtype()) && x.inner < kNarrowRow && 4 * x.outer * a.in[1].numel() * x.inner >= out.numel();
}

void add_positions(const KernelArgs& a, const Lines& x, const void* src, double alpha) {
  const View &index = a.in[1], &out = a.out[0];
  const int64_t count = index.numel();
  if (count == 0 || out.numel() == 0) return;
  if (is_half(out.dtype()) || x.inner >= kNarrowRow)
    return cpu::add_rows(out.dtype(), x, positions_of(a, 1, x.n), src, out.data, alpha);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_arithmetic_v<T>)
      with_positions(a, 1, x.n, [&](auto position) {
        T factor;
        store_number(out.dtype(), &factor, alpha);
        add_narrow_rows(x, count, position, static_cast<const T*>(src), out.as<T>(), factor);
      });
  });
}

void index_select_backward_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const Lines lines(out.shape(), int(a.attr<int64_t>("dim")) - 1);
  if (sums_in_copies(a, lines)) return run_widened(a, index_select_backward_kernel);
  check_positions(a, 1, lines.n, true);
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  add_positions(a, lines, a.in[0].data, 1);
}

void index_add_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  const int d = a.dim("dim", x.rank());
  if (sums_in_copies(a, Lines(out.shape(), d))) return run_widened(a, index_add_kernel);
  check_positions(a, 1, x.size(d), true);
  if (out.numel() == 0) return;
  const Region source(a.in[2], out.dtype(), indexed_shape(out.shape(), d, index.shape()));
  if (out.data != x.data) copy_strided(x, out.data);
  add_positions(a, Lines(out.shape(), d), source.data, a.attr<double>("alpha"));
}

void index_assign_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  const int d = a.dim("dim", x.rank());
  check_positions(a, 1, x.size(d), true);
  if (out.numel() == 0) return;
  const Region value(a.in[2], out.dtype(), indexed_shape(out.shape(), d, index.shape()));
  if (out.data != x.data) copy_strided(x, out.data);
  const Lines lines(out.shape(), d);
  const int64_t count = index.numel(), bytes = lines.inner * size_of(out.dtype());
  const char* from = static_cast<const char*>(value.data);
  char* const to = out.as<char>();
  if (lines.inner >= kNarrowRow) return assign_rows(lines, positions_of(a, 1, lines.n), from, to, bytes);
  Poller poll;
  with_positions(a, 1, lines.n, [&](auto position) {
    for (int64_t i = 0; i < lines.outer * count; ++i, poll(bytes))
      std::memcpy(to + (i / count * lines.n + position(i % count)) * bytes, from + i * bytes, size_t(bytes));
  });
}

void one_hot_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const int64_t classes = out.size(out.rank() - 1);
  check_positions(a, 0, classes, false);
  with_positions(a, 0, classes, [&](auto position) {
    parallel_for(x.numel(), 4 * kGrain / (classes + 1) + 1, [&](int64_t begin, int64_t end) {
      int64_t* const rows = out.as<int64_t>();
      std::fill(rows + begin * classes, rows + end * classes, 0);
      for (int64_t i = begin; i < end; ++i) rows[i * classes + position(i)] = 1;
    });
  });
}

}  // namespace

void add_index_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"gather", gather_kernel, kStridedInputs},
      {"gather_backward", gather_backward_kernel, kStridedInputs},
      {"take_along_dim", take_along_kernel},
      {"pick", pick_kernel},
      {"scatter", scatter_kernel, kStridedInputs},
      {"scatter_add", scatter_add_kernel, kStridedInputs},
      {"index_select", index_select_kernel},
      {"index_select_backward", index_select_backward_kernel},
      {"take", take_kernel},
      {"embedding", embedding_kernel},
      {"index_add", index_add_kernel},
      {"index_assign", index_assign_kernel},
      {"index_copy", index_assign_kernel},
      {"index_fill", index_assign_kernel},
      {"one_hot", one_hot_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
