// Normalization of rows and of channels. T: the dtype of x; D: of dy; Out: of sums; Mean, Var: of running statistics;
// I: an integer that counts elements.
namespace pg::kernels {

using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline C at(const void* list, int64_t i) { return static_cast<const C*>(list)[i]; }
__device__ inline C at_or(const void* list, int64_t i, C absent) { return list ? at(list, i) : absent; }

// Returns the sum of the values of the threads that have the same place among `width` neighbours, to all of them.
__device__ inline C block_sum(C* shared, C value, int width = 1) {
  return over_block(
      shared, value, [](C p, C q) { return p + q; }, width);
}

// One block a row.
PERIGEE_BLOCK_KERNEL(row_norm, RowNormArgs) {
  __shared__ C shared[256];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* out = static_cast<T*>(a.out) + row * a.n;
  C mean = 0, sum = 0;
  if (a.centered) {
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) sum += C(widen(x[i]));
    mean = block_sum(shared, sum) / C(a.n);
  }
  sum = 0;
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const C d = C(widen(x[i])) - mean;
    sum += d * d;
  }
  const C rstd = C(1 / std::sqrt(double(block_sum(shared, sum)) / double(a.n) + a.eps));
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
    out[i] = convert_one<T>((C(widen(x[i])) - mean) * rstd * at_or(a.weight, i, 1) + at_or(a.bias, i, 0));
  if (threadIdx.x > 0) return;
  static_cast<C*>(a.mean)[row] = mean;
  static_cast<C*>(a.rstd)[row] = rstd;
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight; without centering the term mean(g) is absent.
PERIGEE_BLOCK_KERNEL(row_norm_dx, RowNormArgs) {
  __shared__ C shared[256];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  const D* dy = static_cast<const D*>(a.dy) + row * a.n;
  const C mean = a.centered ? at(a.mean, row) : C(0), rstd = at(a.rstd, row);
  C sum = 0, dot = 0;
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const C g = C(widen(dy[i])) * at_or(a.weight, i, 1);
    sum += g;
    dot += g * ((C(widen(x[i])) - mean) * rstd);
  }
  dot = block_sum(shared, dot) / C(a.n);
  sum = a.centered ? block_sum(shared, sum) / C(a.n) : C(0);
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const C g = C(widen(dy[i])) * at_or(a.weight, i, 1);
    static_cast<T*>(a.out)[row * a.n + i] = convert_one<T>(rstd * (g - sum - (C(widen(x[i])) - mean) * rstd * dot));
  }
}

// The elements of a channel that one thread adds up. A block has `width` channels, so that neighbours read neighbours.
struct Share {
  int64_t channel, first, end, step, count;  // count: of all threads of the channel
};
__device__ inline Share share_of(const ChannelArgs& a) {
  const int64_t blocks = (a.channels + a.width - 1) / a.width, count = a.batch * a.positions;
  const int64_t part = blockIdx.x / blocks, length = (count + a.parts - 1) / a.parts, begin = part * length;
  const int64_t channel = blockIdx.x % blocks * a.width + threadIdx.x % a.width;
  const int64_t end = begin + length < count ? begin + length : count;
  return {channel, channel < a.channels ? begin + threadIdx.x / a.width : end, end, blockDim.x / a.width, end - begin};
}
// Calls f(position, batch element) for the elements of a share.
template <class F>
__device__ inline void each_element(const ChannelArgs& a, const Share& s, F f) {
  for (int64_t i = s.first; i < s.end; i += s.step) {
    const int64_t b = I(i) / I(a.positions);
    f((b * a.channels + s.channel) * a.positions + (i - b * a.positions), b);
  }
}
__device__ inline void store_partial(const ChannelArgs& a, const Share& s, C first, C second) {
  const int64_t blocks = (a.channels + a.width - 1) / a.width, part = blockIdx.x / blocks;
  if (int(threadIdx.x) >= a.width || s.channel >= a.channels) return;
  C* to = static_cast<C*>(a.partial) + (part * a.channels + s.channel) * 2;
  to[0] = first, to[1] = second;
}

// Each part: its mean, and the sum of the squares of the distances to it.
PERIGEE_BLOCK_KERNEL(channel_moments, ChannelArgs) {
  __shared__ C shared[256];
  const Share s = share_of(a);
  const T* x = static_cast<const T*>(a.x);
  C sum = 0;
  each_element(a, s, [&](int64_t i, int64_t) { sum += C(widen(x[i])); });
  const C mean = block_sum(shared, sum, a.width) / C(s.count);
  sum = 0;
  each_element(a, s, [&](int64_t i, int64_t) {
    const C d = C(widen(x[i])) - mean;
    sum += d * d;
  });
  store_partial(a, s, mean, block_sum(shared, sum, a.width));
}

// Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
PERIGEE_KERNEL(batch_statistics, BatchStatisticsArgs) {
  for (int64_t c = thread_index(); c < a.channels; c += thread_count()) {
    const int64_t length = a.parts ? (a.count + a.parts - 1) / a.parts : 0;
    double n = 0, mean = 0, squares = 0;
    for (int64_t p = 0; p < a.parts; ++p) {
      const double more = double((p + 1) * length < a.count ? length : a.count - p * length), all = n + more;
      const double part = double(at(a.partial, (p * a.channels + c) * 2)), step = part - mean;
      mean += is_finite(step) ? step * (more / all) : part;  // an infinity stays, two that differ give NaN
      squares += double(at(a.partial, (p * a.channels + c) * 2 + 1)) + step * step * (n * more / all);
      n = all;
    }
    const double var = n > 0 ? squares / n : 0;
    static_cast<C*>(a.mean)[c] = C(mean);
    static_cast<C*>(a.rstd)[c] = C(1 / std::sqrt(var + a.eps));
    if (!a.running_mean) continue;
    const double old_mean = double(widen(static_cast<const Mean*>(a.running_mean)[c])),
                 old_var = double(widen(static_cast<const Var*>(a.running_var)[c]));
    static_cast<Mean*>(a.new_mean)[c] = convert_one<Mean>(old_mean * a.keep + double(C(mean)) * (1 - a.keep));
    static_cast<Var*>(a.new_var)[c] = convert_one<Var>(old_var * a.keep + var * a.unbias * (1 - a.keep));
  }
}

// out = (x - mean) rstd weight + bias, without what is absent.
PERIGEE_KERNEL(channel_apply, ChannelArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t c = I(i) / I(a.positions) % I(a.channels);
    C v = C(widen(static_cast<const T*>(a.x)[i]));
    if (a.mean) v = (v - at(a.mean, c)) * at(a.rstd, c);
    static_cast<T*>(a.out)[i] = convert_one<T>(v * at_or(a.weight, c, 1) + at_or(a.bias, c, 0));
  }
}

// The sums of dy xhat and of dy.
PERIGEE_BLOCK_KERNEL(channel_sums, ChannelArgs) {
  __shared__ C shared[256];
  const Share s = share_of(a);
  C dot = 0, sum = 0;
  each_element(a, s, [&](int64_t i, int64_t b) {
    const int64_t k = a.by_batch ? b : s.channel;
    const C dy = C(widen(static_cast<const D*>(a.dy)[i]));
    dot += dy * ((C(widen(static_cast<const T*>(a.x)[i])) - at_or(a.mean, k, 0)) * at(a.rstd, k));
    sum += dy;
  });
  dot = block_sum(shared, dot, a.width);
  store_partial(a, s, dot, block_sum(shared, sum, a.width));
}

PERIGEE_KERNEL(channel_totals, ChannelArgs) {
  for (int64_t c = thread_index(); c < a.channels; c += thread_count()) {
    double dot = 0, sum = 0;
    for (int64_t p = 0; p < a.parts; ++p) {
      dot += double(at(a.partial, (p * a.channels + c) * 2));
      sum += double(at(a.partial, (p * a.channels + c) * 2 + 1));
    }
    static_cast<Out*>(a.out)[c] = convert_one<Out>(dot);
    static_cast<Out*>(a.out2)[c] = convert_one<Out>(sum);
  }
}

// dx = weight rstd (dy - sum(dy) / n - xhat sum(dy xhat) / n)
PERIGEE_KERNEL(channel_dx, ChannelArgs) {
  const C n = C(a.batch * a.positions);
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t c = I(i) / I(a.positions) % I(a.channels);
    const C rstd = at(a.rstd, c), xhat = (C(widen(static_cast<const T*>(a.x)[i])) - at(a.mean, c)) * rstd;
    const C inner = C(widen(static_cast<const D*>(a.dy)[i])) - at(a.dbias, c) / n - xhat * (at(a.dweight, c) / n);
    static_cast<T*>(a.out)[i] = convert_one<T>(rstd * at_or(a.weight, c, 1) * inner);
  }
}

}  // namespace pg::kernels
