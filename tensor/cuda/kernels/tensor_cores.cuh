// Products of matrices of halves by the 32 threads of a warp (mma.sync.m16n8k16 of PTX, from sm_80 on), and how their
// operands come from memory. T: Half or BFloat16. All threads of a warp call these functions.
//
// A fragment of 16 x 16 elements is 4 words of two neighbouring columns each: thread 4 g + t has row g, row g + 8, and
// both rows 8 columns further, from column 2 t on. Sums of 16 x 8 are 4 floats: two columns of row g, two of row g + 8.
namespace pg::kernels {

__device__ inline int lane() { return int(threadIdx.x) % 32; }
// The row and the column of element e of the thread's sums.
__device__ inline int sum_row(int e) { return lane() / 4 + e / 2 * 8; }
__device__ inline int sum_column(int e) { return lane() % 4 * 2 + e % 2; }

#ifdef PERIGEE_HOST_WARP
__device__ inline uint32_t pair(T low, T high) { return uint32_t(low.bits) | uint32_t(high.bits) << 16; }
#else
__device__ inline uint32_t in_shared(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
#endif

// Two numbers as halves.
__device__ inline uint32_t pack(float low, float high) {
#ifdef PERIGEE_HOST_WARP
  return pair(formulas::convert_one<T>(low), formulas::convert_one<T>(high));
#else
  uint32_t word;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#endif
}

// 2^x with an error of some units in the last place; results below the smallest normal number are 0.
__device__ inline float fast_exp2(float x) {
#ifdef PERIGEE_HOST_WARP
  return std::exp2(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// sums += a b. b has 8 columns: thread 4 g + t has column g; b0 rows 2 t and 2 t + 1, b1 the rows 8 further.
__device__ inline void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef PERIGEE_HOST_WARP
  multiply_fragments(sums, a, b0, b1, [](uint32_t bits) { return formulas::widen(T{uint16_t(bits)}); });
#else
#define PERIGEE_MMA(type)                                                                                    \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
      "{%0,%1,%2,%3};"                                                                                       \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, BFloat16>)
    PERIGEE_MMA("bf16");
  else
    PERIGEE_MMA("f16");
#undef PERIGEE_MMA
#endif
}

// Where the fragments of a tile in shared memory are. The tile and its rows are at multiples of 16 bytes.
template <int kPitch>
struct Fragments {
#ifdef PERIGEE_HOST_WARP
  const T* tile;
  __device__ explicit Fragments(const T* of) : tile(of) {}
#else
  uint32_t address;  // of the row of 8 elements that this thread gives to ldmatrix
  __device__ explicit Fragments(const T* of) : address(in_shared(of + lane() % 16 * kPitch + lane() / 16 * 8)) {}
#endif
};

// The fragment from a row and a column on.
template <int kPitch>
__device__ inline void load_fragment(uint32_t (&to)[4], const Fragments<kPitch>& from, int row, int column) {
#ifdef PERIGEE_HOST_WARP
  for (int i = 0; i < 4; ++i) {
    const T* at = from.tile + (row + sum_row(i % 2 * 2)) * kPitch + column + i / 2 * 8 + sum_column(0);
    to[i] = pair(at[0], at[1]);
  }
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from.address + uint32_t(row * kPitch + column) * 2)
               : "memory");
#endif
}

// The same with each of its four matrices of 8 x 8 transposed: their words are pairs of rows.
template <int kPitch>
__device__ inline void load_transposed(uint32_t (&to)[4], const Fragments<kPitch>& from, int row, int column) {
#ifdef PERIGEE_HOST_WARP
  for (int i = 0; i < 4; ++i) {
    const T* at = from.tile + (row + i % 2 * 8 + sum_column(0)) * kPitch + column + i / 2 * 8 + sum_row(0);
    to[i] = pair(at[0], at[kPitch]);
  }
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from.address + uint32_t(row * kPitch + column) * 2)
               : "memory");
#endif
}

// Begins to copy 16 bytes to shared memory, or zeros if they are not inside. Both are at multiples of 16 bytes.
__device__ inline void begin_copy(T* to, const T* from, bool inside) {
#ifdef PERIGEE_HOST_WARP
  for (int i = 0; i < 8; ++i) to[i] = inside ? from[i] : T{};
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(in_shared(to)), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
#endif
}
// Waits for the copies that the thread began.
__device__ inline void finish_copies() {
#ifndef PERIGEE_HOST_WARP
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// --- Tiles in shared memory: rows of halves that are so far apart that 8 of them are in different banks ---

constexpr int pitch_of(int width) { return width + 8; }

// `count` rows of a matrix in memory, which begin at multiples of 16 bytes. If the width is no multiple of 8, zeros
// follow it up to the next one.
struct HalfRows {
  const T* data;
  int64_t row;
  int count, width;
};

// Begins to copy rows from `first` on to a tile. What the matrix lacks is zeros.
template <int kCount, int kWidth, int kThreads>
__device__ inline void begin_tile(T* tile, const HalfRows& from, int first) {
  constexpr int kPacks = kWidth / 8, kAll = kCount * kPacks;
  PERIGEE_UNROLL
  for (int i = 0; i < kAll; i += kThreads) {
    const int p = i + int(threadIdx.x), row = p / kPacks, c = p % kPacks * 8;
    if (kAll % kThreads != 0 && p >= kAll) return;
    const bool inside = first + row < from.count && c < from.width;
    begin_copy(tile + row * pitch_of(kWidth) + c, from.data + (inside ? (first + row) * from.row + c : 0), inside);
  }
}

// The fragments of 16 rows of a tile.
template <int kSteps>
__device__ inline void load_rows(uint32_t (&rows)[kSteps][4], const T* tile) {
  const Fragments<pitch_of(kSteps * 16)> from(tile);
  PERIGEE_UNROLL
  for (int k = 0; k < kSteps; ++k) load_fragment(rows[k], from, 0, k * 16);
}

// sums += rows tile^T, for columns from `column` on.
template <int kTiles, int kPitch>
__device__ inline void add_step(float (&sums)[kTiles][4], const uint32_t (&rows)[4], const Fragments<kPitch>& tile,
                                int column) {
  PERIGEE_UNROLL
  for (int n = 0; n < kTiles; n += 2) {
    uint32_t b[4];
    load_fragment(b, tile, n * 8, column);
    multiply(sums[n], rows, b[0], b[2]);
    multiply(sums[n + 1], rows, b[1], b[3]);
  }
}
// sums += rows tile^T.
template <int kTiles, int kSteps>
__device__ inline void add_products(float (&sums)[kTiles][4], const uint32_t (&rows)[kSteps][4], const T* tile) {
  const Fragments<pitch_of(kSteps * 16)> from(tile);
  PERIGEE_UNROLL
  for (int k = 0; k < kSteps; ++k) add_step(sums, rows[k], from, k * 16);
}
// The same with rows in shared memory, where registers are few.
template <int kWidth, int kTiles>
__device__ inline void add_products(float (&sums)[kTiles][4], const T* rows, const T* tile) {
  const Fragments<pitch_of(kWidth)> left(rows), right(tile);
  PERIGEE_UNROLL
  for (int k = 0; k < kWidth; k += 16) {
    uint32_t a[4];
    load_fragment(a, left, 0, k);
    add_step(sums, a, right, k);
  }
}

// sums += weights tile, with the weights rounded.
template <int kTiles, int kColumns>
__device__ inline void add_weighted(float (&sums)[kTiles][4], const float (&weights)[kColumns][4], const T* tile) {
  const Fragments<pitch_of(kTiles * 8)> from(tile);
  PERIGEE_UNROLL
  for (int k = 0; k < kColumns; k += 2) {
    uint32_t a[4];
    PERIGEE_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = pack(weights[k + i / 2][i % 2 * 2], weights[k + i / 2][i % 2 * 2 + 1]);
    PERIGEE_UNROLL
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      load_transposed(b, from, k * 8, n * 8);
      multiply(sums[n], a, b[0], b[1]);
      multiply(sums[n + 1], a, b[2], b[3]);
    }
  }
}

// Stores 16 rows of sums times a factor, those below `rows`, to a row-major matrix of `width` columns.
template <int kTiles>
__device__ inline void store_rows(void* to, int first, int rows, int width, const float (&sums)[kTiles][4],
                                  const float (&factors)[2]) {
  PERIGEE_UNROLL
  for (int n = 0; n < kTiles; ++n)
    PERIGEE_UNROLL
    for (int e = 0; e < 4; e += 2) {
      const int row = first + sum_row(e), column = n * 8 + sum_column(e);
      if (row >= rows || column >= width) continue;
      T* at = static_cast<T*>(to) + int64_t(row) * width + column;
      const uint32_t word = pack(sums[n][e] * factors[e / 2], sums[n][e + 1] * factors[e / 2]);
      if (width % 2 == 0) {
        *reinterpret_cast<uint32_t*>(at) = word;
      } else {
        at[0] = T{uint16_t(word)};
        if (column + 1 < width) at[1] = T{uint16_t(word >> 16)};
      }
    }
}

}  // namespace pg::kernels
