// Kernels of ops that select elements by a bool tensor.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

// An input broadcast to `shape` and contiguous. Copies only if it is not so already.
struct Broadcast {
  const void* data;
  WorkVector<char> copy;
  Broadcast(const View& v, const Dims& shape) : data(v.data) {
    if (v.shape() == shape && is_contiguous(shape, *v.strides)) return;
    copy.resize(size_t(numel(shape) * size_of(v.dtype())));
    assign_block(v, v.dtype(), shape, copy.data(), contiguous_strides(shape));
    data = copy.data();
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// Blocks of n elements, and how many chosen ones come before each: threads can then take blocks.
class Blocks {
 public:
  // count(begin, end) returns the number of chosen elements in [begin, end).
  template <class F>
  Blocks(int64_t n, const F& count) : n_(n), before_(size_t((n + kBlock - 1) / kBlock + 1), 0) {
    const int64_t blocks = int64_t(before_.size()) - 1;
    parallel_for(blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) before_[size_t(i) + 1] = count(i * kBlock, std::min(n_, (i + 1) * kBlock));
    });
    for (size_t i = 1; i < before_.size(); ++i) before_[i] += before_[i - 1];
  }
  // Of the true elements of a mask.
  Blocks(const uint8_t* mask, int64_t n)
      : Blocks(n, [mask](int64_t begin, int64_t end) {
          int64_t count = 0;
          for (int64_t i = begin; i < end; ++i) count += mask[i];
          return count;
        }) {}

  int64_t chosen() const { return before_.back(); }

  // Calls f(begin, end, before, after) for each block, on all threads: the numbers of chosen elements before it and
  // before the next. A chosen element is as much work as `work` others.
  template <class F>
  void each(int64_t work, const F& f) const {
    const int64_t blocks = int64_t(before_.size()) - 1, total = n_ + chosen() * work;
    parallel_for(blocks, (8 << 10) / (total / std::max<int64_t>(blocks, 1) + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        f(i * kBlock, std::min(n_, (i + 1) * kBlock), before_[size_t(i)], before_[size_t(i) + 1]);
    });
  }

 private:
  static constexpr int64_t kBlock = 8 << 10;
  int64_t n_;
  WorkVector<int64_t> before_;
};

// to[i] = chosen[i] ? value : from[i], without a branch. `to` may be `from`.
template <class T>
void fill_chosen(const uint8_t* chosen, const T* from, T* to, int64_t n, T value) {
  const auto pick = [&](int64_t i, T old) {
    const T keep = T(T(chosen[i]) - 1);  // all bits set where the mask is false
    return T((old & keep) | (value & ~keep));
  };
  if (from == to)  // a compiler vectorizes loops over one array, or over arrays that are apart
    for (int64_t i = 0; i < n; ++i) to[i] = pick(i, to[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = pick(i, from[i]);
}

// The same for all of `out`, whose type `value` has.
void fill_chosen(const uint8_t* chosen, const void* from, const View& out, const void* value) {
  visit_size(size_of(out.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T number;
    std::memcpy(&number, value, sizeof(T));
    parallel_for(out.numel(), 32 << 10, [&](int64_t begin, int64_t end) {
      fill_chosen(chosen + begin, static_cast<const T*>(from) + begin, out.as<T>() + begin, end - begin, number);
    });
  });
}

void masked_fill_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const Broadcast x(a.in[0], out.shape()), mask(a.in[1], out.shape());
  alignas(8) char number[8];
  convert(a.in[2].dtype(), a.in[2].data, out.dtype(), number, 1);
  fill_chosen(mask.as<uint8_t>(), x.data, out, number);
}

// Calls f(i) for each i in [begin, end) where chosen(i) is 1, in order. A call is as much work as `work` elements.
template <class C, class F>
void over_chosen(int64_t begin, int64_t end, int64_t work, const C& chosen, const F& f) {
  constexpr int64_t kPart = 1024;
  int32_t found[kPart];
  Poller poll;
  for (; begin < end; begin += kPart) {
    const int64_t part = std::min(kPart, end - begin);
    int64_t count = 0;
    for (int64_t j = 0; j < part; ++j) found[count] = int32_t(j), count += chosen(begin + j);  // without a branch
    for (int64_t k = 0; k < count; ++k, poll(work)) f(begin + found[k]);
    poll(part);
  }
}

// Calls f(i, k) for each i where mask is true, with the number k of those before it, on all threads.
template <class F>
void over_true(const Blocks& blocks, const uint8_t* mask, int64_t work, const F& f) {
  blocks.each(work, [&](int64_t begin, int64_t end, int64_t k, int64_t) {
    over_chosen(
        begin, end, work, [mask](int64_t i) { return mask[i]; }, [&](int64_t i) { f(i, k++); });
  });
}

// Calls f(bytes), with a constant for the sizes of elements: a copy of so many bytes is then one instruction.
template <class F>
void with_row_size(int64_t bytes, const F& f) {
  if (bytes <= 8 && std::has_single_bit(uint64_t(bytes)))
    visit_size(int(bytes),
               [&](auto tag) { f(std::integral_constant<size_t, sizeof(typename decltype(tag)::type)>{}); });
  else
    f(size_t(bytes));
}

// Copies the rows of `from` where mask is true to consecutive rows of `to`.
void read_rows(const Blocks& blocks, const uint8_t* mask, const char* from, char* to, int64_t bytes) {
  with_row_size(bytes, [&](auto size) {
    const int64_t step = int64_t(size);
    over_true(blocks, mask, bytes, [&](int64_t i, int64_t k) { std::memcpy(to + k * step, from + i * step, size); });
  });
}

// Copies consecutive rows of `from` to the rows of `to` where mask is true.
void write_rows(const Blocks& blocks, const uint8_t* mask, const char* from, char* to, int64_t bytes) {
  with_row_size(bytes, [&](auto size) {
    const int64_t step = int64_t(size);
    over_true(blocks, mask, bytes, [&](int64_t i, int64_t k) { std::memcpy(to + i * step, from + k * step, size); });
  });
}

// read_rows for elements, at most as many as `out` has. Every element is written, but the target advances only where
// mask is true: this avoids a branch.
void read_elements(const Blocks& blocks, const uint8_t* mask, const void* from, const View& out) {
  const int64_t most = out.numel();
  visit_size(size_of(out.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = static_cast<const T*>(from);
    blocks.each(2, [=, to = out.as<T>()](int64_t begin, int64_t end, int64_t before, int64_t after) {
      int64_t at = before;
      for (int64_t i = begin; at < std::min(after, most);)  // elements that cannot reach what another block writes
        for (const int64_t safe = std::min(end, i + std::min(after, most) - at); i < safe; ++i) {
          to[at] = x[i];
          at += mask[i];
        }
    });
  });
}

void masked_select_kernel(const KernelArgs& a) {
  Dims shape;
  broadcast(a.in[0].shape(), a.in[1].shape(), &shape);
  const Broadcast x(a.in[0], shape), mask(a.in[1], shape);
  const Blocks blocks(mask.as<uint8_t>(), numel(shape));
  read_elements(blocks, mask.as<uint8_t>(), x.data, a.allocate(0, {blocks.chosen()}));
}

// Checks the number of elements before anything is written.
void masked_scatter_kernel(const KernelArgs& a) {
  const View &source = a.in[2], &out = a.out[0];
  const Broadcast mask(a.in[1], out.shape());
  const uint8_t* flags = mask.as<uint8_t>();
  const Blocks blocks(flags, out.numel());
  const int64_t count = blocks.chosen();
  if (source.numel() < count)
    bad_argument(a.op.name, "source", fmt::format("at least {} elements, one for each true element of the mask", count),
                 std::to_string(source.numel()));
  const int size = size_of(out.dtype());
  WorkVector<char> values(size_t(source.numel() * size));
  assign_block(source, out.dtype(), source.shape(), values.data(), contiguous_strides(source.shape()));
  if (out.data != a.in[0].data)
    assign_block(a.in[0], out.dtype(), out.shape(), out.data, contiguous_strides(out.shape()));
  write_rows(blocks, flags, values.data(), out.as<char>(), size);
}

void masked_scatter_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &mask = a.in[1], &out = a.out[0];
  const Broadcast flags(mask, dy.shape()), values(dy, dy.shape());
  const Blocks blocks(flags.as<uint8_t>(), dy.numel());
  read_elements(blocks, flags.as<uint8_t>(), values.data, out);
  const int64_t count = std::min(blocks.chosen(), out.numel()), size = size_of(out.dtype());
  zero_bytes(out.as<char>() + count * size, (out.numel() - count) * size);
}

Dims rest_of(const View& whole, const View& mask) {
  Dims rest;
  for (int d = mask.rank(); d < whole.rank(); ++d) rest.push_back(whole.size(d));
  return rest;
}

void mask_get_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &mask = a.in[1];
  Dims shape = rest_of(x, mask);
  const int64_t bytes = numel(shape) * size_of(x.dtype());
  const Blocks blocks(mask.as<uint8_t>(), mask.numel());
  shape.insert(0, blocks.chosen());
  const View out = a.allocate(0, shape);
  if (shape.size() == 1) return read_elements(blocks, mask.as<uint8_t>(), x.data, out);
  read_rows(blocks, mask.as<uint8_t>(), x.as<char>(), out.as<char>(), bytes);
}

void check_count(const KernelArgs& a, const char* name, int64_t rows, int64_t count) {
  if (rows != count)
    bad_argument(a.op.name, name, fmt::format("{} rows, one for each true element of the mask", count),
                 std::to_string(rows));
}

void mask_get_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &mask = a.in[1], &out = a.out[0];
  const Blocks blocks(mask.as<uint8_t>(), mask.numel());
  check_count(a, "dy", dy.size(0), blocks.chosen());
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  write_rows(blocks, mask.as<uint8_t>(), dy.as<char>(), out.as<char>(),
             numel(rest_of(out, mask)) * size_of(out.dtype()));
}

void mask_assign_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &mask = a.in[1], &value = a.in[2], &out = a.out[0];
  const uint8_t* flags = mask.as<uint8_t>();
  Dims rest = rest_of(x, mask);
  const int64_t bytes = numel(rest) * size_of(out.dtype());
  const bool counted = value.rank() == rest.size() + 1 && value.size(0) != 1;
  const bool single = !counted && numel(rest) == 1;
  const Blocks blocks(flags, single ? 0 : mask.numel());
  if (counted) {
    check_count(a, "value", value.size(0), blocks.chosen());
    rest.insert(0, value.size(0));
  }
  if (out.numel() == 0) return;
  WorkVector<char> source(size_t(numel(rest) * size_of(out.dtype())));
  assign_block(value, out.dtype(), rest, source.data(), contiguous_strides(rest));
  if (single) return fill_chosen(flags, x.data, out, source.data());
  if (out.data != x.data) copy_strided(x, out.data);
  if (counted) return write_rows(blocks, flags, source.data(), out.as<char>(), bytes);
  over_true(blocks, flags, bytes,
            [&](int64_t i, int64_t) { std::memcpy(out.as<char>() + i * bytes, source.data(), size_t(bytes)); });
}

template <class T>
bool is_nonzero(T v) {
  if constexpr (std::is_arithmetic_v<T>)
    return v != T(0);
  else
    return (v.bits & 0x7fff) != 0;
}

template <class T>
void find_nonzero(const KernelArgs& a) {
  const View& x = a.in[0];
  const T* const values = x.as<T>();
  const int64_t base = a.attr<int64_t>("index_base");
  const Blocks blocks(x.numel(), [values](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += is_nonzero(values[i]);
    return count;
  });
  const View out = a.allocate(0, {blocks.chosen(), x.rank()});
  if (x.rank() == 0) return;
  const int last = x.rank() - 1;
  const int64_t row = x.size(last);  // a run of the last dim
  blocks.each(2 * x.rank(), [&](int64_t begin, int64_t end, int64_t before, int64_t) {
    int64_t* to = out.as<int64_t>() + before * x.rank();
    int64_t index[kMaxRank];  // of the row
    for (int64_t d = last - 1, rest = begin / row; d >= 0; rest /= x.size(int(d)), --d)
      index[d] = rest % x.size(int(d));
    for (int64_t first = begin / row * row; first < end; first += row) {
      const auto chosen = [values](int64_t i) { return is_nonzero(values[i]); };
      over_chosen(std::max(begin, first), std::min(end, first + row), 0, chosen, [&](int64_t i) {
        for (int d = 0; d < last; ++d) to[d] = index[d] + base;
        to[last] = i - first + base;
        to += x.rank();
      });
      for (int d = last - 1; d >= 0 && ++index[d] == x.size(d); --d) index[d] = 0;
    }
  });
}

void nonzero_kernel(const KernelArgs& a) {
  visit_dtype(a.in[0].dtype(), [&](auto tag) { find_nonzero<typename decltype(tag)::type>(a); });
}

}  // namespace

void add_mask_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"masked_fill", masked_fill_kernel, kStridedInputs},
      {"masked_select", masked_select_kernel, kStridedInputs},
      {"masked_scatter", masked_scatter_kernel, kStridedInputs},
      {"masked_scatter_backward", masked_scatter_backward_kernel, kStridedInputs},
      {"mask_get", mask_get_kernel},
      {"mask_get_backward", mask_get_backward_kernel},
      {"mask_assign", mask_assign_kernel},
      {"nonzero", nonzero_kernel},
      {"argwhere", nonzero_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
