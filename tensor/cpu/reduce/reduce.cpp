#include "tensor/cpu/reduce/reduce.h"

#include <algorithm>

#include "tensor/cpu/half.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/parallel.h"
#include "tensor/small_vector.h"

namespace pg::cpu {
namespace {

struct Axis {
  int64_t size, in_stride, out_stride;
  bool reduced;
};

using Axes = SmallVector<Axis, 6>;

// Returns the axes of `in` by descending stride, without dims of size 1. Adjacent axes are merged when both sides allow
// it. Repeated axes (stride 0) come first, because the last axis is the best for an inner loop.
Axes sorted_axes(const View& in, uint32_t mask) {
  Axes axes;
  int64_t out_stride = 1;
  for (int d = in.rank() - 1; d >= 0; --d) {
    const bool reduced = mask >> d & 1;
    if (in.size(d) == 1) continue;
    axes.push_back({in.size(d), (*in.strides)[d], reduced ? 0 : out_stride, reduced});
    if (!reduced) out_stride *= in.size(d);
  }
  std::reverse(axes.begin(), axes.end());
  const auto before = [](const Axis& a, const Axis& b) {
    return (a.in_stride == 0 ? INT64_MAX : a.in_stride) > (b.in_stride == 0 ? INT64_MAX : b.in_stride);
  };
  for (Axis* a = axes.begin(); a != axes.end(); ++a)  // stable, and without std::stable_sort's allocation
    std::rotate(std::upper_bound(axes.begin(), a, *a, before), a, a + 1);
  Axes merged;
  for (const Axis& b : axes) {
    if (!merged.empty()) {
      Axis& a = merged.back();
      const bool fits = a.reduced == b.reduced && a.in_stride == b.in_stride * b.size &&
                        (a.reduced || a.out_stride == b.out_stride * b.size);
      if (fits) {
        a = {a.size * b.size, b.in_stride, b.out_stride, a.reduced};
        continue;
      }
    }
    merged.push_back(b);
  }
  return merged;
}

int64_t total_size(const Axes& axes) {
  int64_t n = 1;
  for (const Axis& a : axes) n *= a.size;
  return n;
}

// The input and output offsets of a linear position over the axes.
struct Place {
  int64_t in = 0, out = 0;
};
Place place_of(const Axes& axes, int64_t i) {
  Place at;
  for (size_t d = axes.size(); d-- > 0;) {
    const int64_t k = i % axes[d].size;
    i /= axes[d].size;
    at.in += k * axes[d].in_stride;
    at.out += k * axes[d].out_stride;
  }
  return at;
}

using Fetch = void (*)(const char* p, int64_t stride, int64_t n, void* buffer);

template <class S, class C>
void fetch(const char* p, int64_t stride, int64_t n, void* buffer) {
  const S* from = reinterpret_cast<const S*>(p);
  C* to = static_cast<C*>(buffer);
  if constexpr (std::is_same_v<S, Half> || std::is_same_v<S, BFloat16>)
    if (stride == 1) return to_float(from, to, n);
  if (stride == 0)
    std::fill_n(to, n, C(*from));
  else if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = C(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = C(from[i * stride]);
}

Fetch fetch_for(DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kUInt8:
      return fetch<uint8_t, uint8_t>;
    case DType::kInt8:
      return fetch<int8_t, int8_t>;
    case DType::kInt32:
      return fetch<int32_t, int32_t>;
    case DType::kInt64:
      return fetch<int64_t, int64_t>;
    case DType::kFloat16:
      return fetch<Half, float>;
    case DType::kBFloat16:
      return fetch<BFloat16, float>;
    case DType::kFloat32:
      return fetch<float, float>;
    default:
      return fetch<double, double>;
  }
}

bool totals_are_double(ReduceOp op, DType t) { return is_float(t) && op != ReduceOp::kCount; }

template <class Out>
void store_as(Out* out, int64_t stride, const Total* totals, int64_t n, bool real, const Reduction& r) {
  const auto put = [&](int64_t i, auto v) {
    if constexpr (std::is_same_v<Out, Half> || std::is_same_v<Out, BFloat16>)
      out[i * stride] = Out(float(v));
    else
      out[i * stride] = static_cast<Out>(v);
  };
  if (r.finish == Finish::kPlain && real) {
    for (int64_t i = 0; i < n; ++i) put(i, totals[i].f);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (r.finish == Finish::kScale)
      put(i, (real ? totals[i].f : double(totals[i].i)) * r.factor);
    else if (r.finish == Finish::kAny)
      put(i, totals[i].i != 0);
    else if (r.finish == Finish::kAll)
      put(i, double(totals[i].i) == r.factor);
    else
      put(i, totals[i].i);
  }
}

class Reducer {
 public:
  Reducer(const View& in, uint32_t mask, const View& out, const Reduction& reduction)
      : reduction_(reduction), in_type_(in.dtype()), out_type_(out.dtype()), compute_(reduce_compute_type(in.dtype())) {
    loops_ = reduce_loops(reduction.op, compute_);
    if (in.numel() * size_of(in_type_) >= kFetchBytes) loops_.runs = loops_.fetching_runs;
    fetch_ = fetch_for(in_type_);
    in_ = in.as<const char>();
    out_ = out.as<char>();
    empty_ = in.numel() == 0;
    outputs_ = out.numel();
    Axes axes = sorted_axes(in, mask);
    if (axes.empty()) axes.push_back({1, 1, 1, true});
    inner_ = axes.back();
    axes.pop_back();
    for (const Axis& a : axes) (a.reduced ? reduced_ : kept_).push_back(a);
    direct_ = inner_.in_stride == 1 && size_of(in_type_) == size_of(compute_);
    kept_count_ = total_size(kept_);
    reduced_count_ = total_size(reduced_);
  }

  void run() {
    if (empty_) return fill_with_init();
    if (inner_.reduced) return reduce_inner();
    reduce_outer();
  }

 private:
  const char* at(int64_t in_offset) const { return in_ + in_offset * size_of(in_type_); }

  void store(int64_t offset, int64_t stride, const Total* totals, int64_t n) const {
    store_totals(out_type_, out_ + offset * size_of(out_type_), stride, totals, n, in_type_, reduction_);
  }

  void fill_with_init() const {
    for (int64_t i = 0; i < outputs_; ++i) store(i, 1, &loops_.init, 1);
  }

  // --- The innermost axis is reduced: every output is a sum of runs ---

  static constexpr int64_t kRunBlock = 4096;

  void add_run(Total* total, int64_t in_offset, int64_t n) const {
    if (direct_) return loops_.runs(total, at(in_offset), n, 1, 0);
    const Scratch<char> buffer(kRunBlock * 8);
    for (int64_t i = 0; i < n; i += kRunBlock) {
      const int64_t m = std::min(kRunBlock, n - i);
      fetch_(at(in_offset + i * inner_.in_stride), inner_.in_stride, m, buffer);
      loops_.runs(total, buffer, m, 1, 0);
    }
  }

  // Combines each of n runs at equal distances into a total of its own. Short ones that are converted share a buffer.
  void add_even_runs(Total* totals, int64_t in_offset, int64_t n, int64_t distance) const {
    if (direct_) return loops_.runs(totals, at(in_offset), inner_.size, n, distance);
    const Scratch<char> buffer(kRunBlock * 8);
    const int64_t size = inner_.size, most = kRunBlock / size;
    if (most < 2) {
      for (int64_t k = 0; k < n; ++k) add_run(totals + k, in_offset + k * distance, size);
      return;
    }
    for (int64_t k = 0, m; k < n; k += m, totals += m, in_offset += m * distance) {
      m = std::min(most, n - k);
      if (distance == size * inner_.in_stride)
        fetch_(at(in_offset), inner_.in_stride, m * size, buffer);
      else
        for (int64_t i = 0; i < m; ++i)
          fetch_(at(in_offset + i * distance), inner_.in_stride, size, buffer + i * size * size_of(compute_));
      loops_.runs(totals, buffer, size, m, size);
    }
  }

  // Combines the runs at all reduced positions. Runs at equal distances share one call.
  void add_runs(Total* total, int64_t in_offset) const {
    if (!direct_ || reduced_.empty()) {
      for (int64_t r = 0; r < reduced_count_; ++r) add_run(total, in_offset + place_of(reduced_, r).in, inner_.size);
      return;
    }
    const Axis& last = reduced_[reduced_.size() - 1];
    Total batch[kBatch];
    for (int64_t r = 0; r < reduced_count_; r += last.size)
      for (int64_t first = 0; first < last.size; first += kBatch) {
        int64_t n = std::min(kBatch, last.size - first);
        std::fill(batch, batch + n, loops_.init);
        loops_.runs(batch, at(in_offset + place_of(reduced_, r + first).in), inner_.size, n, last.in_stride);
        for (; n > 1; n = (n + 1) / 2) loops_.join(batch, batch + (n + 1) / 2, n / 2);
        loops_.join(total, batch, 1);
      }
  }

  void reduce_inner() const {
    const int64_t work = reduced_count_ * inner_.size;
    constexpr int64_t kLongRun = 4 << 10, kMuchWork = 256 << 10;  // short runs are cheaper in batches
    if (reduces_in_chunks(kept_count_, work) && (inner_.size >= kLongRun || work > kMuchWork))
      return reduce_inner_in_chunks();
    if (reduced_.empty() && !kept_.empty()) return reduce_rows_of_runs();
    parallel_for(kept_count_, grain(work), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const Place place = place_of(kept_, k);
        Total total = loops_.init;
        add_runs(&total, place.in);
        store(place.out, 1, &total, 1);
      }
    });
  }

  // One run per output, with outputs at equal distances: many runs share one call.
  void reduce_rows_of_runs() const {
    const Axis& last = kept_[kept_.size() - 1];
    const int64_t batch = std::clamp<int64_t>((16 << 10) / inner_.size, 1, std::min(kBatch, last.size));
    const int64_t batches = (last.size + batch - 1) / batch;
    parallel_for(kept_count_ / last.size * batches, grain(inner_.size * batch), [&](int64_t begin, int64_t end) {
      Total totals[kBatch];
      for (int64_t k = begin; k < end; ++k) {
        const int64_t first = k % batches * batch, n = std::min(batch, last.size - first);
        const Place place = place_of(kept_, k / batches * last.size + first);
        std::fill(totals, totals + n, loops_.init);
        add_even_runs(totals, place.in, n, last.in_stride);
        store(place.out, last.out_stride, totals, n);
      }
    });
  }

  // Few outputs with much work each: partial totals over chunks of fixed size, combined in order.
  void reduce_inner_in_chunks() const {
    const int64_t chunk = std::min(reduce_chunk(reduced_count_ * inner_.size), inner_.size);
    const int64_t pieces = (inner_.size + chunk - 1) / chunk;  // per run
    const int64_t chunks = reduced_count_ * pieces;
    WorkVector<Total> partial(kept_count_ * chunks, loops_.init);
    parallel_for(int64_t(partial.size()), grain(chunk), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % pieces * chunk, r = i / pieces % reduced_count_;
        const int64_t offset = place_of(kept_, i / chunks).in + place_of(reduced_, r).in + first * inner_.in_stride;
        add_run(&partial[i], offset, std::min(chunk, inner_.size - first));
      }
    });
    for (int64_t k = 0; k < kept_count_; ++k) {
      Total total = loops_.init;
      for (int64_t c = 0; c < chunks; ++c) loops_.join(&total, &partial[k * chunks + c], 1);
      store(place_of(kept_, k).out, 1, &total, 1);
    }
  }

  // --- The innermost axis is kept: the totals of a tile of outputs accumulate row after row ---

  // Calls f(in_offset, stride, n) for runs of n rows at equal distances, of rows [begin, end) of the reduced positions.
  template <class F>
  void over_even_rows(int64_t begin, int64_t end, const F& f) const {
    const Axis row = reduced_.empty() ? Axis{1, 0, 0, true} : reduced_[reduced_.size() - 1];
    const int64_t last = row.size, stride = row.in_stride;
    while (begin < end) {
      const int64_t n = std::min(end, begin - begin % last + last) - begin;
      f(place_of(reduced_, begin).in, stride, n);
      begin += n;
    }
  }

  // Combines rows [begin, end) of the reduced positions, for `width` outputs from in_offset on.
  void add_rows(Total* totals, int64_t in_offset, int64_t begin, int64_t end, int64_t width) const {
    over_even_rows(begin, end, [&](int64_t offset, int64_t stride, int64_t n) {
      add_even_rows(totals, in_offset + offset, stride, n, width);
    });
  }

  void add_even_rows(Total* totals, int64_t in_offset, int64_t stride, int64_t n, int64_t width) const {
    if (!direct_) return add_fetched_rows(totals, in_offset, stride, n, width);
    const bool narrow = width < 16 || (width < 64 && width % 16 != 0);
    if (narrow && stride == width && n * width >= 2 * kReduceTile) return add_narrow_rows(totals, in_offset, n, width);
    for (int64_t r = 0; r < n; r += kReduceRows)
      loops_.rows(totals, at(in_offset + r * stride), stride, std::min(kReduceRows, n - r), width);
  }

  // For gapless rows that are too short for vectors: several rows are treated as one long row.
  void add_narrow_rows(Total* totals, int64_t in_offset, int64_t n, int64_t width) const {
    const int64_t group = std::min(n / 2, kReduceTile / 2 / width), wide = group * width, wide_rows = n / group;
    const Scratch<Total> scratch(kReduceTile);
    Total* const sums = scratch;
    std::fill(sums, sums + wide, loops_.init);
    for (int64_t r = 0; r < wide_rows; r += kReduceRows)
      loops_.rows(sums, at(in_offset + r * wide), wide, std::min(kReduceRows, wide_rows - r), wide);
    for (int64_t g = 0; g < group; ++g) loops_.join(totals, sums + g * width, width);
    const int64_t done = wide_rows * group;
    if (done < n) loops_.rows(totals, at(in_offset + done * width), width, n - done, width);
  }

  void add_fetched_rows(Total* totals, int64_t in_offset, int64_t stride, int64_t n, int64_t width) const {
    const Scratch<char> buffer(kRunBlock * 8);
    const int64_t rows = std::min<int64_t>(kReduceRows, kRunBlock / width);
    for (int64_t r = 0; r < n; r += rows) {
      const int64_t m = std::min(rows, n - r);
      for (int64_t i = 0; i < m; ++i)
        fetch_(at(in_offset + (r + i) * stride), inner_.in_stride, width, buffer + i * width * size_of(compute_));
      loops_.rows(totals, buffer, width, m, width);
    }
  }

  void reduce_outer() const {
    const int64_t tiles = (inner_.size + kReduceTile - 1) / kReduceTile, tasks = kept_count_ * tiles;
    const int64_t width = std::min(inner_.size, kReduceTile);
    const int64_t work = reduced_count_ * width;
    constexpr int64_t kFewestBytes = 200 << 10;  // not a part of a grain: sums in chunks have other roundings
    if (reduces_in_chunks(tasks, work) && tasks * work * size_of(in_type_) >= kFewestBytes)
      return reduce_outer_in_chunks();
    const PlainRows plain = rows_without_totals();
    parallel_for(tasks, grain(reduced_count_ * width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % tiles * kReduceTile, n = std::min(kReduceTile, inner_.size - first);
        Place place = place_of(kept_, i / tiles);
        place.in += first * inner_.in_stride, place.out += first * inner_.out_stride;
        if (plain)
          reduce_plain_tile(plain, place, n);
        else
          reduce_tile(place, n);
      }
    });
  }

  void reduce_tile(const Place& place, int64_t n) const {
    const Scratch<Total> scratch(kReduceTile);
    Total* const totals = scratch;
    std::fill(totals, totals + n, loops_.init);
    add_rows(totals, place.in, 0, reduced_count_, n);
    store(place.out, inner_.out_stride, totals, n);
  }

  // The loops for wide rows whose totals are exact in the type of the output: extremes, sums and products of integers,
  // and what is added up in it anyway because the rows are few. Null for others.
  PlainRows rows_without_totals() const {
    constexpr int64_t kWide = 64;
    const bool gapless = inner_.in_stride == 1 && inner_.out_stride == 1 && inner_.size >= kWide;
    const bool extreme = reduction_.op == ReduceOp::kMax || reduction_.op == ReduceOp::kMin;
    const bool whole = !extreme && !is_float(in_type_) && out_type_ == DType::kInt64;
    if (!gapless || (in_type_ != out_type_ && !whole)) return nullptr;
    const bool half = is_half(in_type_);
    const int64_t most = half ? kRunBlock / std::min(inner_.size, kReduceTile) : kReduceRows;
    const bool few = reduced_.size() <= 1 && reduced_count_ <= most;
    return few || extreme || whole ? plain_rows(reduction_.op, half ? compute_ : in_type_) : nullptr;
  }

  void reduce_plain_tile(PlainRows plain, const Place& place, int64_t n) const {
    if (is_half(in_type_)) return reduce_half_tile(plain, place, n);
    char* const to = out_ + place.out * size_of(out_type_);
    bool start = true;
    over_even_rows(0, reduced_count_, [&](int64_t offset, int64_t stride, int64_t rows) {
      plain(to, start, at(place.in + offset), stride, rows, n);
      start = false;
    });
    if (reduction_.finish != Finish::kScale) return;
    out_type_ == DType::kFloat64 ? scale(reinterpret_cast<double*>(to), n) : scale(reinterpret_cast<float*>(to), n);
  }

  void reduce_half_tile(PlainRows plain, const Place& place, int64_t n) const {
    alignas(64) float totals[kReduceTile], buffer[kRunBlock];
    const int64_t rows = kRunBlock / n;
    for (int64_t r = 0; r < reduced_count_; r += rows) {
      const int64_t m = std::min(rows, reduced_count_ - r);
      for (int64_t i = 0; i < m; ++i) fetch_(at(place.in + place_of(reduced_, r + i).in), 1, n, buffer + i * n);
      plain(totals, r == 0, buffer, n, m, n);
    }
    if (reduction_.finish == Finish::kScale) scale(totals, n);
    convert(DType::kFloat32, totals, out_type_, out_ + place.out * size_of(out_type_), n);
  }

  template <class T>
  void scale(T* totals, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) totals[i] = T(double(totals[i]) * reduction_.factor);
  }

  void reduce_outer_in_chunks() const {
    const int64_t width = inner_.size, tiles = (width + kReduceTile - 1) / kReduceTile;
    const int64_t rows = std::max<int64_t>(64, reduce_chunk(reduced_count_ * width) / width),
                  chunks = (reduced_count_ + rows - 1) / rows;
    WorkVector<Total> partial(kept_count_ * chunks * width, loops_.init);
    parallel_for(kept_count_ * chunks, grain(rows * width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t r = i % chunks * rows;
        const Place place = place_of(kept_, i / chunks);
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t first = t * kReduceTile;
          add_rows(&partial[i * width + first], place.in + first * inner_.in_stride, r,
                   std::min(reduced_count_, r + rows), std::min(kReduceTile, width - first));
        }
      }
    });
    for (int64_t k = 0; k < kept_count_; ++k) {
      Total* totals = &partial[k * chunks * width];
      for (int64_t c = 1; c < chunks; ++c) loops_.join(totals, totals + c * width, width);
      store(place_of(kept_, k).out, inner_.out_stride, totals, width);
    }
  }

  int64_t grain(int64_t elements) const { return shared_grain(elements * size_of(in_type_)); }

  static constexpr int64_t kBatch = 256;  // outputs that are stored together

  Reduction reduction_;
  DType in_type_, out_type_, compute_;
  ReduceLoops loops_;
  Fetch fetch_;
  const char* in_;
  char* out_;
  Axes kept_, reduced_;  // without inner_
  Axis inner_;
  int64_t outputs_, kept_count_, reduced_count_;
  bool empty_, direct_;
};

}  // namespace

void store_totals(DType to, void* out, int64_t stride, const Total* totals, int64_t n, DType from,
                  const Reduction& reduction) {
  const bool real = totals_are_double(reduction.op, from);
  visit_dtype(to, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    store_as(static_cast<Out*>(out), stride, totals, n, real, reduction);
  });
}

void reduce(const View& in, uint32_t mask, const View& out, const Reduction& reduction) {
  Reducer(in, mask, out, reduction).run();
}

}  // namespace pg::cpu
