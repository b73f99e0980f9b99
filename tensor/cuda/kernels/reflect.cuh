// QR of small matrices by Householder reflections, stored as LAPACK does. One block a matrix, whose threads share the
// columns. T: float or double; elements of about 1.
namespace pg::kernels {

// Applies the reflection I - tau v v^T to columns [first, last). v is 1 at row j and below it in column j of a.
__device__ inline void reflect(T* a, const ReflectArgs& args, int64_t j, T tau, int64_t first, int64_t last) {
  const T* v = a + j * args.m;
  for (int64_t c = first + threadIdx.x; c < last; c += kReflectThreads) {
    T* x = a + c * args.m;
    T dot = x[j];
    for (int64_t i = j + 1; i < args.m; ++i) dot += v[i] * x[i];
    dot *= tau;
    x[j] -= dot;
    for (int64_t i = j + 1; i < args.m; ++i) x[i] -= dot * v[i];
  }
}

PERIGEE_BLOCK_KERNEL(reflect_small, ReflectArgs) {
  T* matrix = static_cast<T*>(a.a) + int64_t(blockIdx.x) * a.step;
  for (int64_t j = 0; j < a.reflectors; ++j) {
    __syncthreads();
    T* x = matrix + j * a.m;
    const T first = x[j];
    T squares = T(0);
    for (int64_t i = j + 1; i < a.m; ++i) squares += x[i] * x[i];
    const T size = std::sqrt(first * first + squares), last = first > T(0) ? -size : size;
    const T tau = squares == T(0) ? T(0) : (last - first) / last;
    __syncthreads();
    for (int64_t i = j + 1 + threadIdx.x; i < a.m && tau != T(0); i += kReflectThreads) x[i] /= first - last;
    if (threadIdx.x == 0) {
      if (tau != T(0)) x[j] = last;
      static_cast<T*>(a.tau)[int64_t(blockIdx.x) * a.reflectors + j] = tau;
    }
    __syncthreads();
    reflect(matrix, a, j, tau, j + 1, a.n);
  }
}

// The first n columns of the product of the reflections, in place of the reflectors.
PERIGEE_BLOCK_KERNEL(make_q_small, ReflectArgs) {
  T* matrix = static_cast<T*>(a.a) + int64_t(blockIdx.x) * a.step;
  const T* factors = static_cast<const T*>(a.tau) + int64_t(blockIdx.x) * a.reflectors;
  for (int64_t k = a.reflectors * a.m + threadIdx.x; k < a.n * a.m; k += kReflectThreads)
    matrix[k] = k / a.m == k % a.m ? T(1) : T(0);
  for (int64_t j = a.reflectors - 1; j >= 0; --j) {
    __syncthreads();
    const T tau = factors[j];
    reflect(matrix, a, j, tau, j + 1, a.n);
    __syncthreads();
    T* x = matrix + j * a.m;
    for (int64_t i = threadIdx.x; i < a.m; i += kReflectThreads)
      x[i] = i < j ? T(0) : i == j ? T(1) - tau : -tau * x[i];
  }
}

}  // namespace pg::kernels
