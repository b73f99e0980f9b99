// Reductions over any dims of a strided array. T: the dtype of the elements; Out: of the result; kOp; kFinish. With
// kFusedWords, the elements are those of a fused body: `element(words, position)` computes one.
namespace pg::kernels {

enum Op { kSum, kSumSquares, kSumNumbers, kDeviation, kExp, kProd, kMax, kMin, kCount };
enum Finish { kPlain, kScale, kRoot, kAny, kAll, kLog };

constexpr bool kFloating = std::is_floating_point_v<T> || sizeof(T) == 2;
constexpr bool kCentered = kOp == kDeviation || kOp == kExp;
constexpr bool kExtreme = kOp == kMax || kOp == kMin;
using Wide = std::conditional_t<kFloating, double, int64_t>;
using Acc = std::conditional_t<kOp == kCount, int64_t, Wide>;

__device__ inline int64_t offset_of(const Dim* dims, int rank, int64_t at) {
  int64_t offset = 0;
  for (int d = rank - 1; d > 0; --d) {
    offset += at % dims[d].size * dims[d].stride;
    at /= dims[d].size;
  }
  return rank > 0 ? offset + at * dims[0].stride : offset;
}

// The elements of total o.
#ifdef kFusedWords
struct Args : ReduceArgs {
  Words<kFusedWords> body;
};
struct Elements {
  const Args& args;
  const int64_t first;
  __device__ Elements(const Args& a, int64_t o) : args(a), first(o * a.count) {}
  __device__ T operator[](int64_t i) const { return element(args.body, first + i); }
};
#else
using Args = ReduceArgs;
struct Elements {
  const T* x;
  const Dim* dims;
  const int rank;
  __device__ Elements(const Args& a, int64_t o)
      : x(static_cast<const T*>(a.from) + offset_of(a.dims, a.kept, o)), dims(a.dims + a.kept), rank(a.reduced) {}
  __device__ T operator[](int64_t i) const { return x[offset_of(dims, rank, i)]; }
};
#endif

// Whether x replaces best. NaN replaces everything and is never replaced.
__device__ inline bool beats(Wide x, Wide best) {
  if (best != best) return false;
  return x != x || (kOp == kMax ? x > best : x < best);
}
// Integers wrap around: their arithmetic is unsigned.
__device__ inline Wide plus(Wide a, Wide b) {
  if constexpr (kFloating)
    return a + b;
  else
    return Wide(uint64_t(a) + uint64_t(b));
}
__device__ inline Wide times(Wide a, Wide b) {
  if constexpr (kFloating)
    return a * b;
  else
    return Wide(uint64_t(a) * uint64_t(b));
}

__device__ inline Acc term(T element, double center) {
  const Wide x = Wide(widen(element));
  if constexpr (kOp == kExp) return Acc(std::exp(double(x) - center));
  if constexpr (kOp == kDeviation) return Acc((double(x) - center) * (double(x) - center));
  if constexpr (kOp == kCount) return x != Wide(0);
  if constexpr (kOp == kSumSquares) return times(x, x);
  if constexpr (kOp == kSumNumbers) return x == x ? x : Wide(0);
  return Acc(x);
}
__device__ inline Acc combine(Acc a, Acc b) {
  if constexpr (kOp == kCount) return a + b;
  if constexpr (kOp == kProd) return times(a, b);
  if constexpr (kExtreme) return beats(b, a) ? b : a;
  return plus(a, b);
}
__device__ inline Out finished(Acc total, const ReduceArgs& a, int64_t o) {
  const double factor = a.factor;
  if constexpr (kFinish == kLog) {
    const double center = a.centers[o];
    return convert_one<Out>(std::fabs(center) == std::numeric_limits<double>::infinity() ? center : std::log(double(total)) + center);
  }
  if constexpr (kFinish == kScale) return convert_one<Out>(double(total) * factor);
  if constexpr (kFinish == kRoot) return convert_one<Out>(std::sqrt(double(total) * factor));
  if constexpr (kFinish == kAny) return Out(total != 0);
  if constexpr (kFinish == kAll) return Out(double(total) == factor);
  if constexpr (std::is_same_v<Out, Half> || std::is_same_v<Out, BFloat16>) return convert_one<Out>(float(total));
  return Out(total);
}

// The total of elements [begin, end), in steps, of output o; there is at least one.
__device__ inline Acc total_of(const Args& a, int64_t o, int64_t begin, int64_t end, int64_t step) {
  const Elements x(a, o);
  const double center = kCentered ? a.centers[o] : 0;
  Acc total = term(x[begin], center);
  int64_t i = begin + step;
  // Loads of several elements do not wait for each other. The order of the sum is that of the elements.
  constexpr int kBatch = 4;
  for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
    T batch[kBatch];
    PERIGEE_UNROLL
    for (int k = 0; k < kBatch; ++k) batch[k] = x[i + k * step];
    PERIGEE_UNROLL
    for (int k = 0; k < kBatch; ++k) total = combine(total, term(batch[k], center));
  }
  for (; i < end; i += step) total = combine(total, term(x[i], center));
  return total;
}

// One thread per total.
PERIGEE_KERNEL(reduce_threads, Args) {
  Out* to = static_cast<Out*>(a.to);
  for (int64_t o = thread_index(); o < a.outputs; o += thread_count())
    to[o] = finished(total_of(a, o, 0, a.count, 1), a, o);
}

// One block per total, or per part of one; the partial totals are then in `to`.
PERIGEE_BLOCK_KERNEL(reduce_blocks, Args) {
  __shared__ Acc totals[256];
  const int64_t o = blockIdx.x / a.parts, part = blockIdx.x % a.parts, length = (a.count + a.parts - 1) / a.parts;
  const int64_t begin = part * length, end = begin + length < a.count ? begin + length : a.count;
  const int width = end - begin < int64_t(blockDim.x) ? int(end - begin) : int(blockDim.x);
  const int thread = int(threadIdx.x);
  if (thread < width) totals[thread] = total_of(a, o, begin + thread, end, blockDim.x);
  for (int half = int(blockDim.x) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half && thread + half < width) totals[thread] = combine(totals[thread], totals[thread + half]);
  }
  if (thread > 0) return;
  if (a.parts == 1)
    static_cast<Out*>(a.to)[o] = finished(totals[0], a, o);
  else
    static_cast<Acc*>(a.to)[blockIdx.x] = totals[0];
}

// The totals of the partial totals in `from`.
PERIGEE_KERNEL(reduce_parts, Args) {
  const Acc* from = static_cast<const Acc*>(a.from);
  for (int64_t o = thread_index(); o < a.outputs; o += thread_count()) {
    Acc total = from[o * a.parts];
    for (int64_t i = 1; i < a.parts; ++i) total = combine(total, from[o * a.parts + i]);
    static_cast<Out*>(a.to)[o] = finished(total, a, o);
  }
}

#ifndef kFusedWords
// The first extreme of each output, and its position among the elements of the output.
struct Best {
  Wide value;
  int64_t at;
};
__device__ inline Best better(Best a, Best b) {
  if (beats(b.value, a.value)) return b;
  const bool same = b.value == a.value || (b.value != b.value && a.value != a.value);
  return same && b.at < a.at ? b : a;
}
__device__ inline Best best_of(const Args& a, int64_t o, int64_t begin, int64_t step) {
  const Elements x(a, o);
  Best best{Wide(widen(x[begin])), begin};
  for (int64_t i = begin + step; i < a.count; i += step) best = better(best, {Wide(widen(x[i])), i});
  return best;
}
__device__ inline void store_best(const Args& a, int64_t o, Best best) {
  if (a.to) static_cast<T*>(a.to)[o] = Elements(a, o)[best.at];
  static_cast<int64_t*>(a.indices)[o] = best.at + a.base;
}

PERIGEE_KERNEL(extreme_threads, Args) {
  if constexpr (kExtreme)
    for (int64_t o = thread_index(); o < a.outputs; o += thread_count()) store_best(a, o, best_of(a, o, 0, 1));
}

PERIGEE_BLOCK_KERNEL(extreme_blocks, Args) {
  if constexpr (kExtreme) {
    __shared__ Best bests[256];
    const int64_t o = blockIdx.x;
    const int width = a.count < int64_t(blockDim.x) ? int(a.count) : int(blockDim.x), thread = int(threadIdx.x);
    if (thread < width) bests[thread] = best_of(a, o, thread, blockDim.x);
    for (int half = int(blockDim.x) / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half && thread + half < width) bests[thread] = better(bests[thread], bests[thread + half]);
    }
    if (thread == 0) store_best(a, o, bests[0]);
  }
}
#endif

}  // namespace pg::kernels
