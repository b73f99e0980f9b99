// Singular values and eigenvalues of small matrices by one-sided Jacobi rotations (Hestenes 1958; in parallel: Brent and
// Luk 1985): columns are rotated until they are orthogonal. One block a matrix. T: float or double; elements of about 1.
namespace pg::kernels {

constexpr T kEpsilon = sizeof(T) == 8 ? T(0x1p-52) : T(0x1p-23);
constexpr T kTiny = sizeof(T) == 8 ? T(1e-150) : T(1e-18);  // squares of smaller numbers have few digits
constexpr int kSweeps = 40;                                 // 6 to 10 do

struct Matrices {
  T w[kJacobi * kJacobi], v[kJacobi * kJacobi];
  T size[kJacobi], part[kJacobi];
  int order[kJacobi], done[kJacobi];
  int rotated, row;
};

__device__ inline T dot(const T* a, const T* b, int n) {
  T sum = T(0);
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

__device__ inline void rotate(T* p, T* q, int n, T c, T s) {
  for (int i = 0; i < n; ++i) {
    const T x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
}

// Makes two columns of w orthogonal; v gets the same rotation.
__device__ inline void make_orthogonal(Matrices& a, int p, int q, int m, int n) {
  T *x = a.w + p * m, *y = a.w + q * m;
  const T xx = dot(x, x, m), yy = dot(y, y, m), xy = dot(x, y, m);
  if (T(std::fabs(xy)) <= kEpsilon * T(std::sqrt(T(m))) * T(std::sqrt(xx)) * T(std::sqrt(yy))) return;
  const T z = (yy - xx) / (2 * xy), size = T(std::fabs(z));
  const T tangent = (z < T(0) ? T(-1) : T(1)) / (size > T(1e8) ? 2 * size : size + T(std::sqrt(1 + z * z)));
  const T c = 1 / T(std::sqrt(1 + tangent * tangent));
  rotate(x, y, m, c, c * tangent);
  rotate(a.v + p * n, a.v + q * n, n, c, c * tangent);
  a.rotated = 1;
}

// Sweeps over all pairs, in rounds of pairs without common columns.
__device__ inline void make_all_orthogonal(Matrices& a, int m, int n) {
  const int thread = int(threadIdx.x), players = n + n % 2, others = players - 1;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    __syncthreads();
    if (thread == 0) a.rotated = 0;
    for (int round = 0; round < others; ++round) {
      __syncthreads();
      if (thread >= players / 2) continue;
      const int p = thread == 0 ? others : (round + thread) % others;
      const int q = thread == 0 ? round : (round + others - thread) % others;
      if (p < n && q < n) make_orthogonal(a, p < q ? p : q, p < q ? q : p, m, n);
    }
    __syncthreads();
    if (!a.rotated) return;
  }
}

// Columns of w that are 0 and those from n to kept - 1 become unit vectors that are orthogonal to all others.
__device__ inline void complete_basis(Matrices& a, int m, int n, int kept) {
  const int i = int(threadIdx.x);
  for (int column = 0; column < kept; ++column) {
    __syncthreads();
    if (a.done[column]) continue;
    T* x = a.w + column * m;
    // From the coordinate that the others cover least.
    T covered = T(0);
    for (int k = 0; k < kept && i < m; ++k)
      if (a.done[k]) covered += a.w[k * m + i] * a.w[k * m + i];
    a.part[i] = covered;
    __syncthreads();
    if (i == 0) {
      a.row = 0;
      for (int r = 1; r < m; ++r)
        if (a.part[r] < a.part[a.row]) a.row = r;
    }
    __syncthreads();
    if (i < m) x[i] = i == a.row ? T(1) : T(0);
    for (int pass = 0; pass < 2; ++pass) {
      __syncthreads();
      a.part[i] = i < kept && a.done[i] ? dot(a.w + i * m, x, m) : T(0);
      __syncthreads();
      for (int k = 0; k < kept && i < m; ++k)
        if (a.done[k]) x[i] -= a.w[k * m + i] * a.part[k];
    }
    __syncthreads();
    const T size = std::sqrt(dot(x, x, m));
    __syncthreads();
    if (i < m) x[i] /= size;
    if (i == 0) a.done[column] = 1;
  }
  __syncthreads();
}

// Adds c to the diagonal so that no eigenvalue is negative: then singular values are eigenvalues. Returns c.
__device__ inline T shift_diagonal(Matrices& a, int n) {
  const int i = int(threadIdx.x);
  T sum = T(0);
  for (int j = 0; j < n && i < n; ++j) sum += T(std::fabs(a.w[j * n + i]));
  a.part[i] = sum;
  __syncthreads();
  T most = T(0);
  for (int k = 0; k < n; ++k) most = a.part[k] > most ? a.part[k] : most;
  if (i < n) a.w[i * n + i] += most;
  __syncthreads();
  return most;
}

PERIGEE_BLOCK_KERNEL(jacobi_small, JacobiArgs) {
  __shared__ Matrices s;
  const int m = int(a.m), n = int(a.n), kept = int(a.kept), thread = int(threadIdx.x);
  const int64_t matrix = blockIdx.x;
  const T* from = static_cast<const T*>(a.from) + matrix * m * n;
  for (int k = thread; k < m * n; k += kJacobi) {
    const int i = k % m, j = k / m;
    s.w[k] = a.symmetric && i > j ? from[i * m + j] : from[k];
  }
  for (int k = thread; k < n * n; k += kJacobi) s.v[k] = k / n == k % n ? T(1) : T(0);
  __syncthreads();
  const T shift = a.symmetric ? shift_diagonal(s, n) : T(0);
  make_all_orthogonal(s, m, n);
  __syncthreads();
  if (thread < n) {
    const T* w = s.w + thread * m;
    s.size[thread] = a.symmetric ? dot(w, s.v + thread * n, n) - shift : T(std::sqrt(dot(w, w, m)));
  }
  __syncthreads();
  if (thread < n) {  // the place of the column among the sorted ones
    const T size = s.size[thread];
    int place = 0;
    for (int k = 0; k < n; ++k) {
      const bool before = a.symmetric ? s.size[k] < size : s.size[k] > size;
      place += before || (s.size[k] == size && k < thread);
    }
    s.order[place] = thread;
  }
  __syncthreads();
  if (thread < n) static_cast<T*>(a.values)[matrix * n + thread] = s.size[s.order[thread]];
  if (a.right)
    for (int k = thread; k < n * n; k += kJacobi)
      static_cast<T*>(a.right)[matrix * n * n + k] = s.v[s.order[k / n] * n + k % n];
  if (!a.left) return;
  const bool lasts = thread < n && s.size[thread] > kTiny;
  s.done[thread] = lasts;
  for (int i = 0; i < m && lasts; ++i) s.w[thread * m + i] /= s.size[thread];
  complete_basis(s, m, n, kept);
  for (int k = thread; k < m * kept; k += kJacobi) {
    const int column = k / m;
    static_cast<T*>(a.left)[matrix * m * kept + k] = s.w[(column < n ? s.order[column] : column) * m + k % m];
  }
}

}  // namespace pg::kernels
