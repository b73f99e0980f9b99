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

constexpr int64_t kBlock = 64 << 10;  // elements between two polls

int64_t count_true(const uint8_t* mask, int64_t n) {
  int64_t count = 0;
  in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) count += mask[i];
  });
  return count;
}

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

// Calls f(i) for each i < n where mask is true, in order. A call is as much work as `work` elements of the mask.
template <class F>
void over_true(const uint8_t* mask, int64_t n, int64_t work, const F& f) {
  constexpr int64_t kPart = 1024;
  int32_t found[kPart];
  Poller poll;
  for (int64_t begin = 0; begin < n; begin += kPart) {
    const int64_t part = std::min(kPart, n - begin);
    int64_t count = 0;
    for (int64_t j = 0; j < part; ++j) found[count] = int32_t(j), count += mask[begin + j];  // without a branch
    for (int64_t k = 0; k < count; ++k, poll(work)) f(begin + found[k]);
    poll(part);
  }
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
void read_rows(const uint8_t* mask, int64_t n, const char* from, char* to, int64_t bytes) {
  with_row_size(bytes, [&](auto size) {
    over_true(mask, n, bytes, [&](int64_t i) {
      std::memcpy(to, from + i * int64_t(size), size);
      to += size;
    });
  });
}

// Copies consecutive rows of `from` to the rows of `to` where mask is true.
void write_rows(const uint8_t* mask, int64_t n, const char* from, char* to, int64_t bytes) {
  with_row_size(bytes, [&](auto size) {
    over_true(mask, n, bytes, [&](int64_t i) {
      std::memcpy(to + i * int64_t(size), from, size);
      from += size;
    });
  });
}

// read_rows for elements. Every element is written, but the target advances only where mask is true: this avoids a
// branch. Returns how many were copied: at most as many as `out` has.
int64_t read_elements(const uint8_t* mask, int64_t n, const void* from, const View& out) {
  const int64_t count = out.numel();
  int64_t copied = 0;
  visit_size(size_of(out.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t at = 0;
    in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
      const auto copy = [&](int64_t i) {
        out.as<T>()[at] = static_cast<const T*>(from)[i];
        at += mask[i];
      };
      int64_t i = begin;
      for (const int64_t safe = std::min(end, begin + count - at); i < safe; ++i) copy(i);  // they cannot fill `out`
      for (; i < end && at < count; ++i) copy(i);
    });
    copied = at;
  });
  return copied;
}

void masked_select_kernel(const KernelArgs& a) {
  Dims shape;
  broadcast(a.in[0].shape(), a.in[1].shape(), &shape);
  const Broadcast x(a.in[0], shape), mask(a.in[1], shape);
  const int64_t n = numel(shape);
  const View out = a.allocate(0, {count_true(mask.as<uint8_t>(), n)});
  read_elements(mask.as<uint8_t>(), n, x.data, out);
}

// Checks the number of elements before anything is written.
void masked_scatter_kernel(const KernelArgs& a) {
  const View &source = a.in[2], &out = a.out[0];
  const Broadcast mask(a.in[1], out.shape());
  const uint8_t* flags = mask.as<uint8_t>();
  const int64_t count = count_true(flags, out.numel());
  if (source.numel() < count)
    bad_argument(a.op.name, "source", fmt::format("at least {} elements, one for each true element of the mask", count),
                 std::to_string(source.numel()));
  const int size = size_of(out.dtype());
  WorkVector<char> values(size_t(source.numel() * size));
  assign_block(source, out.dtype(), source.shape(), values.data(), contiguous_strides(source.shape()));
  if (out.data != a.in[0].data)
    assign_block(a.in[0], out.dtype(), out.shape(), out.data, contiguous_strides(out.shape()));
  write_rows(flags, out.numel(), values.data(), out.as<char>(), size);
}

void masked_scatter_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &mask = a.in[1], &out = a.out[0];
  const Broadcast flags(mask, dy.shape()), values(dy, dy.shape());
  const int64_t count = read_elements(flags.as<uint8_t>(), dy.numel(), values.data, out), size = size_of(out.dtype());
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
  shape.insert(0, count_true(mask.as<uint8_t>(), mask.numel()));
  const View out = a.allocate(0, shape);
  if (shape.size() == 1) return void(read_elements(mask.as<uint8_t>(), mask.numel(), x.data, out));
  read_rows(mask.as<uint8_t>(), mask.numel(), x.as<char>(), out.as<char>(), bytes);
}

void check_count(const KernelArgs& a, const char* name, int64_t rows, int64_t count) {
  if (rows != count)
    bad_argument(a.op.name, name, fmt::format("{} rows, one for each true element of the mask", count),
                 std::to_string(rows));
}

void mask_get_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &mask = a.in[1], &out = a.out[0];
  check_count(a, "dy", dy.size(0), count_true(mask.as<uint8_t>(), mask.numel()));
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  write_rows(mask.as<uint8_t>(), mask.numel(), dy.as<char>(), out.as<char>(),
             numel(rest_of(out, mask)) * size_of(out.dtype()));
}

void mask_assign_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &mask = a.in[1], &value = a.in[2], &out = a.out[0];
  const uint8_t* flags = mask.as<uint8_t>();
  Dims rest = rest_of(x, mask);
  const int64_t bytes = numel(rest) * size_of(out.dtype());
  const bool counted = value.rank() == rest.size() + 1 && value.size(0) != 1;
  if (counted) {
    check_count(a, "value", value.size(0), count_true(flags, mask.numel()));
    rest.insert(0, value.size(0));
  }
  if (out.numel() == 0) return;
  WorkVector<char> source(size_t(numel(rest) * size_of(out.dtype())));
  assign_block(value, out.dtype(), rest, source.data(), contiguous_strides(rest));
  if (!counted && numel(rest) == 1) return fill_chosen(flags, x.data, out, source.data());
  if (out.data != x.data) copy_strided(x, out.data);
  if (counted) return write_rows(flags, mask.numel(), source.data(), out.as<char>(), bytes);
  over_true(flags, mask.numel(), bytes,
            [&](int64_t i) { std::memcpy(out.as<char>() + i * bytes, source.data(), size_t(bytes)); });
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
  const T* values = x.as<T>();
  const int64_t n = x.numel(), base = a.attr<int64_t>("index_base");
  int64_t count = 0;
  in_polled_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) count += is_nonzero(values[i]);
  });
  const View out = a.allocate(0, {count, x.rank()});
  if (x.rank() == 0 || count == 0) return;
  int64_t* to = out.as<int64_t>();
  constexpr int64_t kPart = 1024;  // of a row, which is a run of the last dim
  int32_t found[kPart];
  int64_t index[kMaxRank] = {};  // of the row
  const int last = x.rank() - 1;
  const int64_t row = x.size(last);
  Poller poll;
  for (int64_t first = 0; first < n; first += row) {
    for (int64_t begin = 0; begin < row; begin += kPart) {
      const int64_t part = std::min(kPart, row - begin);
      const T* const from = values + first + begin;
      int64_t k = 0;
      for (int64_t j = 0; j < part; ++j) found[k] = int32_t(j), k += is_nonzero(from[j]);  // without a branch
      for (int64_t i = 0; i < k; ++i, to += x.rank()) {
        for (int d = 0; d < last; ++d) to[d] = index[d] + base;
        to[last] = begin + found[i] + base;
      }
      poll(part);
    }
    for (int d = last - 1; d >= 0 && ++index[d] == x.size(d); --d) index[d] = 0;
  }
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
