// Linear algebra of small matrices, and what goes before and after the factorizations of cuSOLVER. T: float or double.
namespace pg::kernels {

using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
constexpr Bits kExponent = sizeof(T) == 8 ? Bits(0x7ff0000000000000ull) : Bits(0x7f800000u);
constexpr Bits kLeast = sizeof(T) == 8 ? Bits(0x0010000000000000ull) : Bits(0x00800000u);  // as a number, normal

__device__ inline bool is_finite(T v) { return (std::bit_cast<Bits>(v) & kExponent) != kExponent; }
// The power of two up to a finite v > 0, or the smallest normal number; 1 for 0.
__device__ inline T power_near(T v) {
  if (v == T(0)) return T(1);
  const Bits exponent = std::bit_cast<Bits>(v) & kExponent;
  return std::bit_cast<T>(exponent < kLeast ? kLeast : exponent);
}

PERIGEE_KERNEL(copy_matrices, MatrixCopyArgs) {
  for (int64_t k = thread_index(); k < a.count; k += thread_count()) {
    const int64_t size = a.rows * a.columns, q = k / size, i = k % size / a.columns, j = k % a.columns;
    T v = T(0);
    if (a.from) v = static_cast<const T*>(a.from)[q * a.from_step + i * a.from_row + j * a.from_column];
    if ((a.triangle > 0 && i > j) || (a.triangle < 0 && i < j)) v = T(0);
    if (a.unit && i == j) v = T(1);
    const int64_t sign = a.sign_rows ? i : j;
    if (a.signs && sign < a.sign_count) v *= static_cast<const T*>(a.signs)[q * a.sign_count + sign];
    if (a.scales) {
      const T scale = static_cast<const T*>(a.scales)[q];
      if (scale != scale)
        v = a.scaling < 0 ? T(0) : scale;
      else if (a.scaling != 0)
        v = a.scaling < 0 ? v / scale : v * scale;
    }
    if (a.info && a.info[q] != 0) v = T(a.failed);
    static_cast<T*>(a.to)[q * a.to_step + k % size] = v;
  }
}

// NaN counts as larger than all numbers.
struct Larger {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b || a != a ? a : b;
  }
};

// One block a matrix: a power of two near the largest element, or NaN for one that is not finite.
PERIGEE_BLOCK_KERNEL(matrix_scales, MatrixFactArgs) {
  __shared__ T shared[256];
  const T* x = static_cast<const T*>(a.from) + int64_t(blockIdx.x) * a.step;
  T most = T(0);
  for (int64_t k = threadIdx.x; k < a.rows * a.columns; k += blockDim.x) {
    const int64_t i = k / a.columns, j = k % a.columns;
    if (!a.lower || j <= i) most = Larger()(most, T(std::fabs(x[i * a.row + j * a.column])));
  }
  most = over_block(shared, most, Larger());
  if (threadIdx.x == 0)
    static_cast<T*>(a.out)[blockIdx.x] = is_finite(most) ? power_near(most) : std::numeric_limits<T>::quiet_NaN();
}

// -1 for the columns whose largest element, by absolute value, is negative, else 1.
PERIGEE_KERNEL(column_signs, MatrixFactArgs) {
  for (int64_t k = thread_index(); k < a.matrices * a.columns; k += thread_count()) {
    const T* x = static_cast<const T*>(a.from) + k / a.columns * a.step + k % a.columns * a.column;
    T largest = x[0];
    for (int64_t i = 1; i < a.rows; ++i)
      if (std::fabs(x[i * a.row]) > std::fabs(largest)) largest = x[i * a.row];
    static_cast<T*>(a.out)[k] = largest < T(0) ? T(-1) : T(1);
  }
}

PERIGEE_KERNEL(report_failures, MatrixFactArgs) {
  for (int64_t q = thread_index(); q < a.matrices; q += thread_count())
    if (a.info[q] != 0) report(a.fault, a.report, 0, q);
}

__device__ inline T times_power(T v, int64_t exponent) {
  const int64_t most = 100000;
  return T(ldexp(double(v), int(exponent < -most ? -most : exponent > most ? most : exponent)));
}
struct Largest {
  __device__ int32_t operator()(int32_t a, int32_t b) const { return a > b ? a : b; }
};
constexpr int32_t kNone = std::numeric_limits<int32_t>::min();
// The exponent of the largest of n elements that are `step` apart, less those of `less`; kNone if it is not known.
__device__ inline int32_t largest_exponent(const T* x, int64_t n, int64_t step, const int32_t* less) {
  int32_t most = kNone;
  for (int64_t i = 0; i < n; ++i)
    if (x[i * step] != T(0) && is_finite(x[i * step]))
      most = Largest()(most, int32_t(ilogb(double(x[i * step]))) - (less ? less[i] : 0));
  return most;
}

// One block a matrix. Where a is finite and its elements are so large or small that products of three might leave the
// range of T, the largest element of each row and column of b is near 1; else b is a. tensor/cpu/linalg/scaled.h does
// the same.
PERIGEE_BLOCK_KERNEL(balance, BalanceArgs) {
  __shared__ int32_t shared[256];
  const int64_t n = a.n;
  T* x = static_cast<T*>(a.a) + int64_t(blockIdx.x) * n * n;
  int32_t *rows = a.exponents + int64_t(blockIdx.x) * (2 * n + 1), *columns = rows + n;
  const int safe = sizeof(T) == 8 ? 340 : 41;
  const T low = times_power(T(1), -safe), high = times_power(T(1), safe);
  int32_t extreme = 0;  // 2: not finite
  for (int64_t k = threadIdx.x; k < n * n; k += blockDim.x) {
    const T v = T(std::fabs(x[k]));
    extreme = Largest()(extreme, !is_finite(v) ? 2 : v > high || (v < low && v != T(0)) ? 1 : 0);
  }
  const bool changes = over_block(shared, extreme, Largest()) == 1;
  if (threadIdx.x == 0) columns[n] = changes;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int32_t most = changes ? largest_exponent(x + i, n, n, nullptr) : kNone;
    rows[i] = most == kNone ? 0 : most;
    columns[i] = 0;
  }
  __syncthreads();
  if (!changes) return;
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
    const int32_t most = largest_exponent(x + j * n, n, 1, rows);
    columns[j] = most == kNone ? 0 : most;
    for (int64_t i = 0; i < n; ++i) x[j * n + i] = times_power(x[j * n + i], -int64_t(rows[i]) - columns[j]);
  }
}

// One thread a right-hand side. With c y = 2^-row b, x is 2^-column y; b is brought to a largest element near 1, too.
PERIGEE_KERNEL(balance_sides, BalanceArgs) {
  for (int64_t k = thread_index(); k < a.count; k += thread_count()) {
    const int64_t q = k / a.columns;
    const int32_t *rows = a.exponents + q * a.step, *columns = rows + a.n;
    if (!columns[a.n]) continue;
    T* x = static_cast<T*>(a.x) + q * a.n * a.columns + k % a.columns;
    if (!a.solved) {
      const int32_t most = largest_exponent(x, a.n, a.columns, rows);
      a.largest[k] = most == kNone ? 0 : most;
    }
    for (int64_t i = 0; i < a.n; ++i) {
      T& v = x[i * a.columns];
      v = times_power(v, a.solved ? int64_t(a.largest[k]) - columns[i] : -int64_t(rows[i]) - a.largest[k]);
    }
  }
}

// Determinants of n x n matrices from their factors, or their signs and logarithms.
PERIGEE_KERNEL(determinants, MatrixFactArgs) {
  for (int64_t q = thread_index(); q < a.matrices; q += thread_count()) {
    T product = T(1), log = T(0);
    int64_t exponent = 0;  // the determinant is product 2^exponent
    const int32_t* exponents = a.exponents + q * (2 * a.rows + 1);
    for (int64_t i = 0; i < 2 * a.rows; ++i) exponent += exponents[i];
    if (a.out2) log = T(double(exponent) * 0.693147180559945309417);
    bool odd = false;
    for (int64_t i = 0; i < a.rows; ++i) {
      const T p = static_cast<const T*>(a.from)[q * a.step + i * (a.rows + 1)];
      odd = odd != (a.pivots[q * a.rows + i] != i + 1);
      int own = 0, both = 0;
      product *= a.out2 ? p != p ? p : std::copysign(T(1), p) : T(frexp(double(p), &own));
      product = a.out2 ? product : T(frexp(double(product), &both));
      exponent += int64_t(own) + both;
      if (a.out2) log += std::log(T(std::fabs(p)));
    }
    const bool singular = a.rows > 0 && a.info[q] != 0;
    if (!a.out2) product = times_power(product, exponent);
    static_cast<T*>(a.out)[q] = singular ? T(0) : odd ? -product : product;
    if (a.out2) static_cast<T*>(a.out2)[q] = singular ? -std::numeric_limits<T>::infinity() : log;
  }
}

// One block a matrix: the powers of two that bring the 1-norm down to the limit.
PERIGEE_BLOCK_KERNEL(squarings, MatrixFactArgs) {
  __shared__ double shared[256];
  const T* x = static_cast<const T*>(a.from) + int64_t(blockIdx.x) * a.step;
  double norm = 0;
  for (int64_t j = threadIdx.x; j < a.columns; j += blockDim.x) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += std::fabs(double(x[i * a.columns + j]));
    norm = Larger()(norm, sum);
  }
  norm = over_block(shared, norm, Larger());
  if (threadIdx.x > 0) return;
  const bool finite = norm < std::numeric_limits<double>::infinity();
  int32_t count = 0;
  double scale = 1;
  for (; finite && norm > a.limit; norm /= 2) scale *= 2, ++count;
  a.squarings[blockIdx.x] = finite ? count : -1;
  static_cast<T*>(a.out)[blockIdx.x] = finite ? T(scale) : std::numeric_limits<T>::quiet_NaN();
}

PERIGEE_KERNEL(combine, CombinationArgs) {
  for (int64_t k = thread_index(); k < a.count; k += thread_count()) {
    const int64_t size = a.n * a.n;
    if (a.squarings) {
      if (a.squarings[k / size] > a.done) static_cast<T*>(a.to)[k] = static_cast<const T*>(a.matrices[0])[k];
      continue;
    }
    T sum = k % size / a.n == k % a.n ? T(a.identity) : T(0);
    for (int m = 0; m < 4; ++m)
      if (a.matrices[m]) sum += T(a.factors[m]) * static_cast<const T*>(a.matrices[m])[k];
    static_cast<T*>(a.to)[k] = sum;
  }
}

// --- small matrices ---

// A candidate for a pivot; row -1: none. Of equal ones the first is taken.
struct Pivot {
  T size;
  int row;
};
struct BetterPivot {
  __device__ Pivot operator()(Pivot a, Pivot b) const {
    if (b.row < 0) return a;
    return a.row < 0 || b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a;
  }
};

// One block a column-major n x n matrix: L U with partial pivoting, as cuSOLVER stores it.
PERIGEE_BLOCK_KERNEL(lu_small, SystemArgs) {
  __shared__ T s[kSmallMatrix * kSmallMatrix];
  __shared__ Pivot shared[256];
  const int n = int(a.n), thread = int(threadIdx.x), threads = int(blockDim.x);
  T* matrix = static_cast<T*>(a.a) + int64_t(blockIdx.x) * a.a_step;
  for (int k = thread; k < n * n; k += threads) s[k] = matrix[k];
  int singular = 0;
  for (int j = 0; j < n; ++j) {
    __syncthreads();
    Pivot best{T(0), -1};
    for (int i = j + thread; i < n; i += threads) best = BetterPivot()(best, {T(std::fabs(s[j * n + i])), i});
    const int pivot = over_block(shared, best, BetterPivot()).row;
    const T value = s[j * n + pivot];
    __syncthreads();
    if (thread == 0) a.pivots[int64_t(blockIdx.x) * n + j] = pivot + 1;
    if (value == T(0)) {
      if (singular == 0) singular = j + 1;
      continue;
    }
    for (int c = thread; pivot != j && c < n; c += threads) {
      const T kept = s[c * n + j];
      s[c * n + j] = s[c * n + pivot];
      s[c * n + pivot] = kept;
    }
    __syncthreads();
    for (int i = j + 1 + thread; i < n; i += threads) s[j * n + i] /= value;
    __syncthreads();
    const int rest = n - j - 1;
    for (int k = thread; k < rest * rest; k += threads) {
      const int i = j + 1 + k % rest, c = j + 1 + k / rest;
      s[c * n + i] -= s[j * n + i] * s[c * n + j];
    }
  }
  __syncthreads();
  for (int k = thread; k < n * n; k += threads) matrix[k] = s[k];
  if (thread == 0) a.info[blockIdx.x] = singular;
}

// One block a row-major n x n matrix a, of which the lower triangle is read: x becomes its lower Cholesky factor.
PERIGEE_BLOCK_KERNEL(cholesky_small, SystemArgs) {
  __shared__ T s[kSmallMatrix * kSmallMatrix];
  const int n = int(a.n), thread = int(threadIdx.x), threads = int(blockDim.x);
  const T* from = static_cast<const T*>(a.a) + int64_t(blockIdx.x) * a.a_step;
  T* to = static_cast<T*>(a.x) + int64_t(blockIdx.x) * a.x_step;
  for (int k = thread; k < n * n; k += threads) s[k] = k % n <= k / n ? from[k] : T(0);
  for (int j = 0; j < n; ++j) {
    __syncthreads();
    const T square = s[j * n + j];
    __syncthreads();
    if (square <= T(0)) {
      if (thread == 0) report(a.fault, a.report, 0, blockIdx.x);
      break;
    }
    const T root = std::sqrt(square);
    for (int i = j + thread; i < n; i += threads) s[i * n + j] = i == j ? root : s[i * n + j] / root;
    __syncthreads();
    const int rest = n - j - 1;
    for (int k = thread; k < rest * rest; k += threads) {
      const int i = j + 1 + k / rest, c = j + 1 + k % rest;
      if (c <= i) s[i * n + c] -= s[i * n + j] * s[c * n + j];
    }
  }
  __syncthreads();
  for (int k = thread; k < n * n; k += threads) to[k] = s[k];
}

// x becomes the solution of one triangular system with one right-hand side.
__device__ inline void substitute(const T* m, const SystemArgs& a, bool down, bool unit, T* x) {
  for (int64_t step = 0; step < a.n; ++step) {
    const int64_t i = down ? step : a.n - 1 - step;
    T sum = x[i * a.x_row];
    for (int64_t j = down ? 0 : i + 1; j < (down ? i : a.n); ++j) sum -= m[i * a.row + j * a.column] * x[j * a.x_row];
    x[i * a.x_row] = unit ? sum : sum / m[i * (a.row + a.column)];
  }
}
__device__ inline T* right_side(const SystemArgs& a, int64_t k) {
  return static_cast<T*>(a.x) + k / a.columns * a.x_step + k % a.columns * a.x_column;
}

PERIGEE_KERNEL(solve_triangular_small, SystemArgs) {
  for (int64_t k = thread_index(); k < a.matrices * a.columns; k += thread_count())
    substitute(static_cast<const T*>(a.a) + k / a.columns * a.a_step, a, a.down, a.unit, right_side(a, k));
}

PERIGEE_KERNEL(solve_lu_small, SystemArgs) {
  for (int64_t k = thread_index(); k < a.matrices * a.columns; k += thread_count()) {
    const int64_t q = k / a.columns;
    const T* lu = static_cast<const T*>(a.a) + q * a.a_step;
    const int64_t* pivots = a.pivots + (a.a_step == 0 ? 0 : q * a.n);
    T* x = right_side(a, k);
    for (int64_t i = 0; i < a.n; ++i) {
      const int64_t p = pivots[i] - 1;
      const T kept = x[i * a.x_row];
      x[i * a.x_row] = x[p * a.x_row];
      x[p * a.x_row] = kept;
    }
    substitute(lu, a, true, true, x);
    substitute(lu, a, false, false, x);
  }
}

}  // namespace pg::kernels
