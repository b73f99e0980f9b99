// Softmax along the middle dim of outer x n x inner. T: the dtype of the elements; kLog: log_softmax.
namespace pg::kernels {

using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline C larger(C a, C b) { return a > b || a != a ? a : b; }

__device__ inline void store_softmax(T* y, C x, C top, C sum) {
  *y = convert_one<T>(kLog ? x - top - std::log(sum) : std::exp(x - top) / sum);
}

PERIGEE_KERNEL(softmax_threads, LinesArgs) {
  for (int64_t i = thread_index(); i < a.outer * a.inner; i += thread_count()) {
    const int64_t at = i / a.inner * a.n * a.inner + i % a.inner;
    const T* x = static_cast<const T*>(a.x) + at;
    T* y = static_cast<T*>(a.y) + at;
    C top = C(widen(x[0])), sum = 0;
    for (int64_t k = 1; k < a.n; ++k) top = larger(top, C(widen(x[k * a.inner])));
    for (int64_t k = 0; k < a.n; ++k) sum += std::exp(C(widen(x[k * a.inner])) - top);
    for (int64_t k = 0; k < a.n; ++k) store_softmax(y + k * a.inner, C(widen(x[k * a.inner])), top, sum);
  }
}

// One block per line.
PERIGEE_BLOCK_KERNEL(softmax_blocks, LinesArgs) {
  __shared__ C shared[256];
  const int64_t line = blockIdx.x, at = line / a.inner * a.n * a.inner + line % a.inner;
  const T* x = static_cast<const T*>(a.x) + at;
  T* y = static_cast<T*>(a.y) + at;
  C top = -std::numeric_limits<C>::infinity(), sum = 0;
  for (int64_t k = threadIdx.x; k < a.n; k += blockDim.x) top = larger(top, C(widen(x[k * a.inner])));
  top = over_block(shared, top, [](C p, C q) { return larger(p, q); });
  for (int64_t k = threadIdx.x; k < a.n; k += blockDim.x) sum += std::exp(C(widen(x[k * a.inner])) - top);
  sum = over_block(shared, sum, [](C p, C q) { return p + q; });
  for (int64_t k = threadIdx.x; k < a.n; k += blockDim.x)
    store_softmax(y + k * a.inner, C(widen(x[k * a.inner])), top, sum);
}

}  // namespace pg::kernels
