// The integer types, the halves and the names of namespace std that formulas use, for compilers without standard
// headers such as NVRTC. Inside namespace pg, std:: means pg::std.
namespace pg {

using int8_t = signed char;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

namespace std {

template <bool condition, class A, class B>
struct Conditional {
  using type = A;
};
template <class A, class B>
struct Conditional<false, A, B> {
  using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename Conditional<condition, A, B>::type;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T, class... Options>
inline constexpr bool is_one_of = (is_same_v<T, Options> || ...);
template <class T>
inline constexpr bool is_floating_point_v = is_one_of<T, float, double>;
template <class T>
inline constexpr bool is_signed_v = is_one_of<T, int8_t, int32_t, int64_t, float, double>;
template <class T>
inline constexpr bool is_integral_v = is_one_of<T, bool, int8_t, uint8_t, int32_t, uint32_t, int64_t, uint64_t>;
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class F>
inline constexpr bool is_invocable_v = requires(F f) {
  f();
};
template <class T, class A>
inline constexpr bool is_constructible_v = requires(A a) {
  T(a);
};

template <class T>
struct RemoveConst {
  using type = T;
};
template <class T>
struct RemoveConst<const T> {
  using type = T;
};
template <class T>
using remove_const_t = typename RemoveConst<T>::type;
template <class T>
using make_unsigned_t =
    conditional_t<sizeof(T) == 1, uint8_t, conditional_t<sizeof(T) == sizeof(int32_t), uint32_t, uint64_t>>;

template <class To, class From>
__device__ constexpr To bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static __device__ constexpr float max() { return 0x1.fffffep127f; }
  static __device__ constexpr float infinity() { return bit_cast<float>(0x7f800000u); }
  static __device__ constexpr float quiet_NaN() { return bit_cast<float>(0x7fc00000u); }
};
template <>
struct numeric_limits<double> {
  static __device__ constexpr double max() { return 0x1.fffffffffffffp1023; }
  static __device__ constexpr double infinity() { return bit_cast<double>(0x7ff0000000000000ull); }
  static __device__ constexpr double quiet_NaN() { return bit_cast<double>(0x7ff8000000000000ull); }
};
template <class T>
requires is_integral_v<T>
struct numeric_limits<T> {
  static __device__ constexpr T max() { return T(make_unsigned_t<T>(-1) >> is_signed_v<T>); }
  static __device__ constexpr T min() { return T(-max() - 1); }  // 0 when max() is odd and unsigned: it wraps
};

// clang-format off
using ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atan2, ::atanh, ::ceil, ::copysign, ::cos, ::cosh, ::erf, ::erfc,
    ::exp, ::exp2, ::expm1, ::fabs, ::floor, ::fmod, ::hypot, ::log, ::log10, ::log1p, ::log2, ::pow, ::rint, ::sin,
    ::sinh, ::sqrt, ::tan, ::tanh, ::tgamma, ::trunc;
// clang-format on

}  // namespace std

}  // namespace pg
