#include "tensor/cpu/move/copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/cpu/move/runs_simd.h"
#include "tensor/cpu/move/transpose_simd.h"
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// The dims to walk, outermost first. Dims of size 1 are dropped, and adjacent dims that form one run are merged.
struct Layout {
  int rank = 0;
  int64_t size[kMaxRank] = {}, from[kMaxRank] = {}, to[kMaxRank] = {};
};

int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

// Orders the dims by descending stride of the target, so that writes go forward, then merges them.
Layout simplify(const Dims& shape, const Dims& from, const Dims& to) {
  Layout all;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int at = all.rank++;
    for (; at > 0 && magnitude(all.to[at - 1]) < magnitude(to[i]); --at) {
      all.size[at] = all.size[at - 1];
      all.from[at] = all.from[at - 1];
      all.to[at] = all.to[at - 1];
    }
    all.size[at] = shape[i];
    all.from[at] = from[i];
    all.to[at] = to[i];
  }
  const int count = std::exchange(all.rank, 0);
  for (int i = 0; i < count; ++i) {
    const int last = all.rank - 1;
    const bool merges =
        last >= 0 && all.from[last] == all.from[i] * all.size[i] && all.to[last] == all.to[i] * all.size[i];
    const int at = merges ? last : all.rank++;
    all.size[at] = merges ? all.size[at] * all.size[i] : all.size[i];
    all.from[at] = all.from[i];
    all.to[at] = all.to[i];
  }
  return all;
}

// Walks the first `rank` dims of a layout from a linear position on, and keeps both offsets.
class Walk {
 public:
  Walk(const Layout& layout, int rank, int64_t start) : layout_(layout), rank_(rank) {
    for (int i = rank - 1; i >= 0; --i) {
      index_[i] = start % layout.size[i];
      start /= layout.size[i];
      from += index_[i] * layout.from[i];
      to += index_[i] * layout.to[i];
    }
  }
  int64_t left() const { return layout_.size[rank_ - 1] - index_[rank_ - 1]; }  // in the innermost dim of the walk
  // Moves on by n positions, at most left().
  void advance(int64_t n) {
    for (int i = rank_ - 1; i >= 0; --i, n = 1) {
      from += layout_.from[i] * n;
      to += layout_.to[i] * n;
      if ((index_[i] += n) < layout_.size[i]) return;
      from -= layout_.from[i] * layout_.size[i];
      to -= layout_.to[i] * layout_.size[i];
      index_[i] = 0;
    }
  }
  int64_t from = 0, to = 0;

 private:
  const Layout& layout_;
  int rank_;
  int64_t index_[kMaxRank];
};

constexpr int64_t kShortRow = 8;            // elements
constexpr int64_t kLongRowBytes = 2 << 10;  // worth a call of memcpy

// Copies `count` rows of `row` elements, 1 to kShortRow.
template <class T, int64_t kRow = 1>
void copy_short_rows(int64_t row, int64_t count, const T* from, int64_t from_step, int64_t from_row, T* to,
                     int64_t to_step, int64_t to_row) {
  if constexpr (kRow < kShortRow)
    if (row > kRow) return copy_short_rows<T, kRow + 1>(row, count, from, from_step, from_row, to, to_step, to_row);
  for (int64_t i = 0; i < count; ++i, from += from_row, to += to_row)
    for (int64_t k = 0; k < kRow; ++k) to[k * to_step] = from[k * from_step];
}

// The instruction that memcpy uses for long blocks takes up to eight times as long on some processors where the two
// have different places in a line of the cache.
void copy_memory(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kLong = 1 << 10;
  constexpr uintptr_t kLine = 64;
  const bool alike = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kLine == 0;
  if (alike || bytes < kLong)
    std::memcpy(to, from, size_t(bytes));
  else
    runs_copier<uint8_t>(bytes, 1)(bytes, 1, static_cast<const uint8_t*>(from), 1, 0, static_cast<uint8_t*>(to), 0);
}

template <class T>
void copy_row(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t n) {
  if (to_step == 1 && from_step == 1)
    copy_memory(to, from, n * int64_t(sizeof(T)));
  else if (to_step == 1)
    runs_copier<T>(n, from_step)(n, 1, from, from_step, 0, to, 0);
  else
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

// Copies `count` rows of `row` elements that are not next to each other.
template <class T>
void copy_scattered(int64_t row, int64_t count, const T* from, int64_t from_step, int64_t from_row, T* to,
                    int64_t to_step, int64_t to_row) {
  if (row <= kShortRow) return copy_short_rows(row, count, from, from_step, from_row, to, to_step, to_row);
  for (int64_t i = 0; i < count; ++i) copy_row(from + i * from_row, from_step, to + i * to_row, to_step, row);
}

// Copies planes of the two innermost dims, whose rows are not long.
template <class T>
class PlaneCopy {
 public:
  PlaneCopy(const Layout& layout, const T* from, T* to)
      : l_(layout), from_(from), to_(to), inner_(l_.rank - 1), outer_(l_.rank - 2) {
    const bool runs = l_.to[inner_] == 1 && (magnitude(l_.from[inner_]) <= 1 || row_ > kShortRow);
    if (runs) copy_ = runs_copier<T>(row_, l_.from[inner_]);
  }

  // Tasks are ranges of rows.
  void run() const {
    int64_t total = 1;
    for (int i = 0; i < inner_; ++i) total *= l_.size[i];
    parallel_for(total, shared_grain(row_ * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
      const bool together = copy_ && outer_ > 0 && rows_ <= kFewRows && row_ * sizeof(T) <= kShortRowBytes;
      Walk walk(l_, outer_, begin / rows_);
      int64_t row = begin % rows_;
      for (int64_t left = end - begin; left > 0; row = 0) {
        const int64_t planes = together && row == 0 ? std::min({left / rows_, walk.left(), kPlanes}) : 0;
        const int64_t n = planes > 0 ? planes * rows_ : std::min(rows_ - row, left);
        planes > 0 ? copy_whole(walk, planes) : copy_rows(walk, row, n);
        walk.advance(std::max<int64_t>(planes, 1));
        left -= n;
      }
    });
  }

 private:
  static constexpr int64_t kFewRows = 8, kShortRowBytes = 256;
  static constexpr int64_t kPlanes = 128;  // that stay in the cache until all their rows are written

  // Copies n rows of a plane, from number `row` on.
  void copy_rows(const Walk& walk, int64_t row, int64_t n) const {
    const T* const from = from_ + walk.from + row * l_.from[outer_];
    T* const to = to_ + walk.to + row * l_.to[outer_];
    if (copy_)
      copy_(row_, n, from, l_.from[inner_], l_.from[outer_], to, l_.to[outer_]);
    else
      copy_scattered(row_, n, from, l_.from[inner_], l_.from[outer_], to, l_.to[inner_], l_.to[outer_]);
  }

  // Copies n planes: the first row of all, then the second one and so on.
  void copy_whole(const Walk& walk, int64_t n) const {
    for (int64_t r = 0; r < rows_; ++r)
      copy_(row_, n, from_ + walk.from + r * l_.from[outer_], l_.from[inner_], l_.from[outer_ - 1],
            to_ + walk.to + r * l_.to[outer_], l_.to[outer_ - 1]);
  }

  const Layout& l_;
  const T* from_;
  T* to_;
  const int inner_, outer_;
  const int64_t row_ = l_.size[inner_], rows_ = l_.size[outer_];
  CopyRuns<T> copy_ = nullptr;  // null: elements of a row are apart
};

// Copies rows of the innermost dim. Tasks are ranges of elements, so one long row is shared out too.
template <class T>
void copy_rows(const Layout& l, const T* from, T* to) {
  const int inner = l.rank - 1;
  const int64_t row = l.size[inner];
  int64_t total = row;
  for (int i = 0; i < inner; ++i) total *= l.size[i];
  parallel_for(total, shared_grain(sizeof(T)), [&](int64_t begin, int64_t end) {
    Walk walk(l, inner, begin / row);
    int64_t at = begin % row;
    for (int64_t left = end - begin; left > 0; walk.advance(1), at = 0) {
      const int64_t n = std::min(row - at, left);
      copy_row(from + walk.from + at * l.from[inner], l.from[inner], to + walk.to + at * l.to[inner], l.to[inner], n);
      left -= n;
    }
  });
}

// For layouts in which the innermost dim of the target is not contiguous in the source, but dim `run` is.
template <class T>
void copy_transposed(const Layout& l, int run, const T* from, T* to) {
  const int inner = l.rank - 1;
  const int64_t rows = l.size[run], row_step = l.to[run];
  const int64_t columns = l.size[inner], column_step = l.from[inner];
  Layout outer_dims;
  for (int i = 0; i < inner; ++i) {
    if (i == run) continue;
    const int at = outer_dims.rank++;
    outer_dims.size[at] = l.size[i];
    outer_dims.from[at] = l.from[i];
    outer_dims.to[at] = l.to[i];
  }
  const int outer_rank = outer_dims.rank;
  int64_t outer = 1;
  for (int i = 0; i < outer_rank; ++i) outer *= outer_dims.size[i];
  constexpr int64_t line = 64 / sizeof(T), long_side = 4096, few = 4;  // `few`: channels of pixels
  const int64_t strip = columns <= few ? long_side : line, strips = (rows + strip - 1) / strip;
  const int64_t pieces = (columns + long_side - 1) / long_side, tasks = strips * pieces;
  const int64_t task_bytes = std::min(rows, strip) * std::min(columns, long_side) * int64_t(sizeof(T));
  parallel_for(outer * tasks, shared_grain(task_bytes), [&](int64_t begin, int64_t end) {
    Walk walk(outer_dims, outer_rank, begin / tasks);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % tasks / pieces * strip, column = i % pieces * long_side;
      transpose(std::min(long_side, columns - column), std::min(strip, rows - row),
                from + walk.from + row + column * column_step, column_step, to + walk.to + row * row_step + column,
                row_step);
      if (i % tasks == tasks - 1) walk.advance(1);
    }
  });
}

template <class T>
void copy_layout(const Layout& l, const void* from, void* to) {
  const T* source = static_cast<const T*>(from);
  T* target = static_cast<T*>(to);
  if (l.rank == 0) {
    *target = *source;
    return;
  }
  const int inner = l.rank - 1;
  if (l.to[inner] == 1 && magnitude(l.from[inner]) > 1)
    for (int i = 0; i < inner; ++i)
      if (l.from[i] == 1) return copy_transposed(l, i, source, target);
  if (l.rank > 1 && l.size[inner] * int64_t(sizeof(T)) < kLongRowBytes) return PlaneCopy(l, source, target).run();
  copy_rows(l, source, target);
}

}  // namespace

void copy_block(int size, const Dims& shape, const void* from, const Dims& from_strides, void* to,
                const Dims& to_strides) {
  if (numel(shape) == 0) return;
  const Layout layout = simplify(shape, from_strides, to_strides);
  switch (size) {
    case 1:
      return copy_layout<uint8_t>(layout, from, to);
    case 2:
      return copy_layout<uint16_t>(layout, from, to);
    case 4:
      return copy_layout<uint32_t>(layout, from, to);
    default:
      return copy_layout<uint64_t>(layout, from, to);
  }
}

void copy_strided(const View& from, void* to) {
  const int size = size_of(from.dtype());
  if (is_contiguous(from.shape(), *from.strides)) return copy_bytes(to, from.data, from.numel() * size);
  copy_block(size, from.shape(), from.data, *from.strides, to, contiguous_strides(from.shape()));
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  parallel_for(bytes, shared_grain(1), [&](int64_t begin, int64_t end) {
    copy_memory(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void zero_bytes(void* to, int64_t bytes) {
  parallel_for(bytes, shared_grain(1),
               [&](int64_t begin, int64_t end) { std::memset(static_cast<char*>(to) + begin, 0, end - begin); });
}

void fill_number(DType dtype, void* to, int64_t n, double number) {
  if (n == 1) return store_number(dtype, to, number);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T value;
    store_number(dtype, &value, number);
    parallel_for(n, shared_grain(sizeof(T)), [&](int64_t begin, int64_t end) {
      std::fill(static_cast<T*>(to) + begin, static_cast<T*>(to) + end, value);
    });
  });
}

void assign_block(const View& from, DType dtype, const Dims& shape, void* to, const Dims& to_strides) {
  Dims own = from.shape(), strides = *from.strides;
  while (own.size() > shape.size()) own.erase(0), strides.erase(0);
  const void* data = from.data;
  WorkVector<char> contiguous, converted;
  if (from.dtype() != dtype) {
    const int64_t n = from.numel();
    contiguous.resize(size_t(n * size_of(from.dtype())));
    converted.resize(size_t(n * size_of(dtype)));
    copy_strided(from, contiguous.data());
    convert(from.dtype(), contiguous.data(), dtype, converted.data(), n);
    data = converted.data();
    strides = contiguous_strides(own);
  }
  copy_block(size_of(dtype), shape, data, broadcast_strides(own, strides, shape), to, to_strides);
}

void convert(DType from_type, const void* from, DType to_type, void* to, int64_t n) {
  const int64_t size = size_of(from_type), to_size = size_of(to_type);
  if (from_type == to_type) return copy_bytes(to, from, n * size);
  const ConvertFn run = converter(from_type, to_type);
  parallel_for(n, shared_grain(std::max(size, to_size)), [&](int64_t begin, int64_t end) {
    run(end - begin, static_cast<const char*>(from) + begin * size, 1, static_cast<char*>(to) + begin * to_size);
  });
}

}  // namespace pg::cpu
