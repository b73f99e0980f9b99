// Kernels that write at positions given by index tensors. They check every index value before they write anything.
#include <limits>

#include "tensor/cpu/half.h"
#include "tensor/cpu/move/row_sums.h"
#include "tensor/cpu/move/scatter.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"

namespace pg {
namespace {

using namespace cpu;

// --- scatter_reduce ---

// NaN wins. Only it is worth a branch: which of two numbers is larger cannot be foreseen.
template <class T>
T larger(T a, T b) {
  const T most = a > b ? a : b;
  return a != a ? a : most;
}
template <class T>
T smaller(T a, T b) {
  const T least = a < b ? a : b;
  return a != a ? a : least;
}

// Returns the element that the reduction starts from.
template <class T>
T neutral(const std::string& reduce) {
  using Limits = std::numeric_limits<T>;
  if (reduce == "prod") return T(1);
  if (reduce == "amax") return Limits::has_infinity ? T(-Limits::infinity()) : Limits::lowest();
  if (reduce == "amin") return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return T(0);
}

// Divides by the count, of at least 1; integers round down.
template <class T, class Count>
T mean_of(T sum, Count count) {
  if constexpr (std::is_floating_point_v<T>) {
    return sum / T(count);
  } else {
    const int64_t n = count, whole = int64_t(sum) / n;
    return T(whole - (int64_t(sum) % n < 0));
  }
}

template <class T, class P>
class Reduction {
 public:
  Reduction(const KernelArgs& a, int d, P position)
      : a_(a), along_(a.in[1].shape(), *a.out[0].strides, d), position_(position), value_(a.in[2], a.out[0].dtype()) {
    strides_ = src_strides_of(a.in[2], value_, a.in[1].shape());
  }

  void run() {
    const std::string& reduce = a_.attr<std::string>("reduce");
    if (reduce == "mean")
      return a_.in[1].numel() < std::numeric_limits<int32_t>::max() ? average<int32_t>() : average<int64_t>();
    start(neutral<T>(reduce));
    if (reduce == "prod") return each([](T& to, T from) { to = wrapped_product(to, from); });
    if (reduce == "amax") return each([](T& to, T from) { to = larger(to, from); });
    if (reduce == "amin") return each([](T& to, T from) { to = smaller(to, from); });
    each([](T& to, T from) { to = wrapped_sum(to, from); });
  }

 private:
  template <class F>
  void each(F write) {
    scatter_rows(along_, a_.out[0].as<T>(), *a_.in[1].strides, position_, static_cast<const T*>(value_.data), strides_,
                 write);
  }

  void start(T first) {
    if (!a_.attr<bool>("include_self")) each([first](T& to, T) { to = first; });
  }

  // All memory is there before anything is written. What one thread scatters stays in its cache.
  template <class Count>
  void average() {
    const int64_t n = a_.out[0].numel(), grain = along_.apart() > 1 || along_.splits_rows() ? kGrain : n;
    WorkVector<Count> memory(static_cast<size_t>(n));
    Count* const counts = memory.data();
    T* const out = a_.out[0].as<T>();
    parallel_for(n, grain, [&, own = Count(a_.attr<bool>("include_self"))](int64_t begin, int64_t end) {
      std::fill(counts + begin, counts + end, own);
    });
    start(T(0));
    each([=](T& to, T from) {
      to = wrapped_sum(to, from);
      ++counts[&to - out];
    });
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = mean_of(out[i], std::max<Count>(counts[i], 1));
    });
  }

  const KernelArgs& a_;
  Along along_;
  P position_;
  Converted value_;
  Dims strides_;
};

void reduce_scattered(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  const int d = a.dim("dim", x.rank());
  check_positions(a, 1, x.size(d), true);
  if (out.data != x.data) copy_strided(x, out.data);
  if (index.numel() == 0) return;
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_arithmetic_v<T>)
      with_positions(a, 1, x.size(d), [&](auto position) { Reduction<T, decltype(position)>(a, d, position).run(); });
  });
}

// Half types are reduced in float32 and rounded once.
void scatter_reduce_kernel(const KernelArgs& a) { run_widened(a, reduce_scattered); }

// --- index_put and put ---

// Writes or adds n rows of `row` elements to the rows of out at `positions`, in order. A number is one row of one
// element for all.
void write_at(const KernelArgs& a, std::span<const int64_t> positions, int64_t row, const void* from) {
  const View& out = a.out[0];
  const bool add = a.attr<bool>("accumulate");
  const Lines lines({out.numel() / row, row}, 0);
  if (add && (is_half(out.dtype()) || row >= kNarrowRow))
    return add_rows(out.dtype(), lines, positions, from, out.data, 1);
  if (row >= kNarrowRow)
    return assign_rows(lines, positions, static_cast<const char*>(from), out.as<char>(), row * size_of(out.dtype()));
  Poller poll;
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* source = static_cast<const T*>(from);
    for (int64_t position : positions) {
      T* to = out.as<T>() + position * row;
      for (int64_t k = 0; k < row; ++k) to[k] = add ? wrapped_sum(to[k], source[k]) : source[k];
      source += row;
      poll(row);
    }
  });
}

// Returns the positions in a flattened array of `sizes` that one index input for each size names, from input `first`
// on. `shape` is that of the indices after broadcasting.
WorkVector<int64_t> flat_positions(const KernelArgs& a, size_t first, std::span<const int64_t> sizes,
                                   const Dims& shape) {
  for (size_t k = 0; k < sizes.size(); ++k) check_positions(a, first + k, sizes[k], true);
  const int64_t n = numel(shape), base = a.attr<int64_t>("index_base");
  WorkVector<int64_t> out(size_t(n), 0), one(size_t(n), 0);
  Poller poll;
  for (size_t k = 0; k < sizes.size(); ++k) {
    assign_block(a.in[first + k], DType::kInt64, shape, one.data(), contiguous_strides(shape));
    for (size_t i = 0; i < size_t(n); ++i, poll()) {
      const int64_t v = one[i];
      out[i] = out[i] * sizes[k] + (v < 0 ? v + sizes[k] : v - base);
    }
  }
  return out;
}

Dims joined_shape(const KernelArgs& a, size_t first, size_t count) {
  Dims joined;
  for (size_t i = 0; i < count; ++i) {
    const Dims before = joined;
    broadcast(before, a.in[first + i].shape(), &joined);
  }
  return joined;
}

// Writes values at `positions`, counted in rows of the dims of x from dim `first` on. `region` starts with the shape of
// the index; the dims of a row are added to it.
void put_rows(const KernelArgs& a, std::span<const int64_t> positions, Dims region, int first) {
  const View &x = a.in[0], &values = a.in.back(), &out = a.out[0];
  if (out.numel() == 0) return;
  int64_t row = 1;
  for (int d = first; d < x.rank(); ++d) {
    region.push_back(x.size(d));
    row = times(row, x.size(d));
  }
  const Region source(values, out.dtype(), region);
  if (out.data != x.data) copy_strided(x, out.data);
  write_at(a, positions, row, source.data);
}

void put_masked(const KernelArgs& a) {
  const View &x = a.in[0], &mask = a.in[1], &values = a.in[2];
  WorkVector<int64_t> positions;
  Poller poll;
  for (int64_t i = 0; i < mask.numel(); ++i, poll())
    if (mask.as<uint8_t>()[i]) positions.push_back(i);
  const int64_t count = int64_t(positions.size());
  if (values.rank() == x.rank() - mask.rank() + 1 && values.size(0) != 1 && values.size(0) != count)
    bad_argument(a.op.name, "values", fmt::format("{} rows, one for each true element of the mask", count),
                 std::to_string(values.size(0)));
  put_rows(a, positions, {count}, mask.rank());
}

void index_put_kernel(const KernelArgs& a) {
  if (a.in[1].dtype() == DType::kBool) return put_masked(a);
  const size_t indices = a.in.size() - 2;
  const Dims shape = joined_shape(a, 1, indices);
  const WorkVector<int64_t> positions = flat_positions(a, 1, {a.in[0].shape().begin(), indices}, shape);
  put_rows(a, positions, shape, int(indices));
}

void flat_index_kernel(const KernelArgs& a) {
  const WorkVector<int64_t> positions = flat_positions(a, 0, a.attr<Ints>("sizes"), a.out[0].shape());
  const int64_t base = a.attr<int64_t>("index_base");
  Poller poll;
  for (size_t i = 0; i < positions.size(); ++i, poll()) a.out[0].as<int64_t>()[i] = positions[i] + base;
}

void put_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  const int64_t size = x.numel();
  const WorkVector<int64_t> positions = flat_positions(a, 1, {&size, 1}, index.shape());
  if (out.numel() == 0) return;
  const Dims shape = a.in[2].numel() == index.numel() ? a.in[2].shape() : index.shape();
  const Region source(a.in[2], out.dtype(), shape);
  if (out.data != x.data) copy_strided(x, out.data);
  write_at(a, positions, 1, source.data);
}

}  // namespace

void add_scatter_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"scatter_reduce", scatter_reduce_kernel, kStridedInputs},
      {"index_put", index_put_kernel},
      {"flat_index", flat_index_kernel},
      {"put", put_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
