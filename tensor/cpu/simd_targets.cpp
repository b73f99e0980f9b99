// Which of Highway's targets this CPU and its system support. Highway's own library answers the same, but measures the
// resolution of the clock whenever it is loaded, 3 ms that every start of the program would pay. With these two
// functions here only Highway's headers are used.
#include <hwy/targets.h>

namespace hwy {

int64_t SupportedTargets() {
  static const int64_t targets = [] {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
    const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
    return HWY_STATIC_TARGET | (avx2 ? HWY_AVX2 : 0) | (avx3 ? HWY_AVX3 : 0);
  }();
  return targets;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
