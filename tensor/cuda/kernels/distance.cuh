// Distances of all pairs of rows. T: float or double; kOrder: of the norm.
namespace pg::kernels {

enum Order { kZero, kOne, kTwo, kInfinite, kAny };

constexpr int kSide = 16, kPart = 64;  // kPart: elements of a partial sum
using Sum = std::conditional_t<kOrder == kZero || kOrder == kAny, double, T>;

__device__ inline Sum term(T difference, double p) {
  const T d = std::fabs(difference);
  if constexpr (kOrder == kZero) return Sum(d != 0);
  if constexpr (kOrder == kTwo) return Sum(difference * difference);
  if constexpr (kOrder == kAny) return Sum(std::pow(double(d), p));
  return Sum(d);
}
// NaN is the largest.
__device__ inline Sum joined(Sum a, Sum b) {
  if constexpr (kOrder == kInfinite) return b > a || b != b ? b : a;
  return a + b;
}
__device__ inline T distance_of(Sum sum, double p) {
  if constexpr (kOrder == kTwo) return T(std::sqrt(sum));
  if constexpr (kOrder == kAny) return T(std::pow(double(sum), 1 / p));
  return T(sum);
}

// One block of 256 threads per 16 rows of x and 16 of y, which it reads 16 elements at a time.
PERIGEE_BLOCK_KERNEL(distances, DistanceArgs) {
  __shared__ T x_tile[kSide][kSide + 1];
  __shared__ T y_tile[kSide][kSide + 1];
  const int64_t across = (a.others + kSide - 1) / kSide, down = (a.rows + kSide - 1) / kSide;
  const int64_t block = blockIdx.x, batch = block / (across * down);
  const int64_t first_x = block / across % down * kSide, first_y = block % across * kSide;
  const int u = int(threadIdx.x) / kSide, v = int(threadIdx.x) % kSide;
  const T* x = static_cast<const T*>(a.x) + batch * a.rows * a.width;
  const T* y = static_cast<const T*>(a.y) + batch * a.others * a.width;
  Sum total = 0, part = 0;
  for (int64_t k = 0; k < a.width; k += kSide) {
    __syncthreads();
    // Elements beyond the end are 0 in both, and add nothing.
    const bool inside = k + v < a.width;
    x_tile[u][v] = inside && first_x + u < a.rows ? x[(first_x + u) * a.width + k + v] : T(0);
    y_tile[u][v] = inside && first_y + u < a.others ? y[(first_y + u) * a.width + k + v] : T(0);
    __syncthreads();
    const int64_t left = a.width - k;
    for (int i = 0; i < kSide && i < left; ++i) part = joined(part, term(x_tile[u][i] - y_tile[v][i], a.p));
    if ((k + kSide) % kPart == 0 || left <= kSide) {
      total = joined(total, part);
      part = 0;
    }
  }
  if (first_x + u < a.rows && first_y + v < a.others)
    static_cast<T*>(a.out)[(batch * a.rows + first_x + u) * a.others + first_y + v] = distance_of(total, a.p);
}

// The derivative of a distance by a difference.
__device__ inline T slope(T d, T distance, double p) {
  const T sign = T(d > 0) - T(d < 0);
  if constexpr (kOrder == kOne) return sign;
  if constexpr (kOrder == kInfinite) return std::fabs(d) == distance ? sign : T(0);
  if (kOrder == kZero || distance == 0) return T(0);
  if constexpr (kOrder == kTwo) return d / distance;
  return d != 0 ? sign * std::pow(std::fabs(d) / distance, T(p) - 1) : T(0);
}

// One thread per element of x.
PERIGEE_KERNEL(distances_back, DistanceArgs) {
  for (int64_t i = thread_index(); i < a.batch * a.rows * a.width; i += thread_count()) {
    const int64_t row = i / a.width, batch = row / a.rows, k = i % a.width;
    const T x = static_cast<const T*>(a.x)[i];
    const T* y = static_cast<const T*>(a.y) + batch * a.others * a.width + k;
    T sum = 0;
    for (int64_t j = 0; j < a.others; ++j) {
      const int64_t pair = row * a.others + j;
      sum += static_cast<const T*>(a.dy)[pair] *
             slope(x - y[j * a.width], static_cast<const T*>(a.distance)[pair], a.p);
    }
    static_cast<T*>(a.out)[i] = sum;
  }
}

}  // namespace pg::kernels
