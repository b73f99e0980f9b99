// Binds the formulas to CUDA C++. The build joins cuda_std-inl.h, fault.h, formula.h, this file, special.h,
// values-inl.h, convert-inl.h, formulas-inl.h and math_formulas-inl.h, without their includes, into the text that
// starts every source of cuda_source.h.
#include <bit>

namespace pg {

// The C library's reentrant functions. CUDA's own write no global variable.
__device__ inline double lgamma_r(double x, int*) { return ::lgamma(x); }
__device__ inline float lgammaf_r(float x, int*) { return ::lgammaf(x); }

#define PERIGEE_FORMULAS pg::formulas
#define PERIGEE_FORMULA_INLINE __device__ inline
#define PERIGEE_LAZY(...) [&] { return __VA_ARGS__; }
#define PERIGEE_FORMULA(Name, op_, inputs_, serves_, ...)                                    \
  struct Name;                                                                               \
  template <>                                                                                \
  struct Named<op_> {                                                                        \
    using F = Name;                                                                          \
    static constexpr FormulaRow row = {                                                      \
        .op = op_, .inputs = inputs_, .serves = Serves::serves_ __VA_OPT__(, ) __VA_ARGS__}; \
  };

// The head of a kernel of one argument `a`. The threads of a block of the second and third kind wait for each other. A
// block of the third kind has `threads` threads, and registers for `blocks` blocks of a multiprocessor.
#ifndef PERIGEE_KERNEL
#define PERIGEE_KERNEL(name, ...) extern "C" __global__ void name(const __grid_constant__ __VA_ARGS__ a)
#define PERIGEE_BLOCK_KERNEL(name, ...) PERIGEE_KERNEL(name, __VA_ARGS__)
#define PERIGEE_BOUNDED_KERNEL(name, threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ __VA_ARGS__ a)
#define PERIGEE_UNROLL _Pragma("unroll")
#endif

namespace formulas {

// The name of an op as a template argument, and the functor of its formula.
template <int size>
struct OpName {
  char text[size];
  constexpr OpName(const char (&from)[size]) {
    for (int i = 0; i < size; ++i) text[i] = from[i];
  }
};
template <OpName op>
struct Named;

struct Params {
  double numbers[4];
};

template <OpName op, class... V>
__device__ inline auto apply([[maybe_unused]] const Params& params, V... values) {
  using F = typename Named<op>::F;
  if constexpr (std::is_constructible_v<F, const double*>)
    return F(params.numbers)(values...);
  else
    return F()(values...);
}

// Whether the op refuses this divisor or exponent.
template <OpName op, class T>
__device__ inline bool refused(T y) {
  return Named<op>::row.check == SpanCheck::kZeroDivisor ? y == T(0) : y < T(0);
}

// The argument of the kernel of a fused body.
template <int size>
struct Words {
  int64_t word[size];
};
// The value whose bytes a word starts with.
template <class T>
__device__ inline T bits(int64_t word) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(word);
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(uint32_t(word));
  if constexpr (sizeof(T) == 2) return std::bit_cast<T>(uint16_t(word));
  if constexpr (sizeof(T) == 1) return T(word);
}
template <class T>
__device__ inline T load(int64_t address, int64_t at) {
  return reinterpret_cast<const T*>(address)[at];
}
template <class T>
__device__ inline void store(int64_t address, int64_t at, T value) {
  reinterpret_cast<T*>(address)[at] = value;
}

// Elements that a thread takes at once, by one access to memory that is aligned to all of them.
template <class T, int count>
struct alignas(count * sizeof(T)) Pack {
  using Element = T;
  static constexpr int size = count;
  T at[count];
};
// `left`: how many elements there are from `at` on. The elements after these are zeros.
template <class P>
__device__ inline P load_pack(int64_t address, int64_t at, int64_t left) {
  const auto* from = reinterpret_cast<const typename P::Element*>(address) + at;
  if (left >= P::size) return *reinterpret_cast<const P*>(from);
  P pack = {};
  PERIGEE_UNROLL
  for (int j = 0; j < P::size; ++j)
    if (j < left) pack.at[j] = from[j];
  return pack;
}
template <class P>
__device__ inline void store_pack(int64_t address, int64_t at, int64_t left, const P& pack) {
  auto* to = reinterpret_cast<typename P::Element*>(address) + at;
  if (left >= P::size) {
    *reinterpret_cast<P*>(to) = pack;
    return;
  }
  PERIGEE_UNROLL
  for (int j = 0; j < P::size; ++j)
    if (j < left) to[j] = pack.at[j];
}

}  // namespace formulas

// Keeps the first report of a stream.
__device__ inline void report(Fault* fault, int32_t number, int64_t value, int64_t at) {
  if (atomicCAS(&fault->report, 0, number) != 0) return;
  fault->value = value;
  fault->at = at;
  __threadfence_system();
}
// The position of this thread among all, and their number.
__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return int64_t(gridDim.x) * blockDim.x; }

}  // namespace pg
