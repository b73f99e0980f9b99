#include "tensor/cpu/isa.h"
#include "tensor/settings.h"

#include <hwy/targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <iterator>
#include <string_view>

namespace pg::cpu {
namespace {

#if HWY_ARCH_X86
constexpr const char* kNames[] = {"sse2", "sse4", "avx2", "avx512", "amx"};
#else  // only the baseline, whatever PERIGEE_MAX_ISA is
constexpr const char* kNames[] = {HWY_ARCH_ARM ? "neon" : "scalar", "sse4", "avx2", "avx512", "amx"};
#endif

#if HWY_ARCH_X86
// Tests for f16c and lzcnt, which the builtin of clang 14 does not know by name.
bool has_late_features() {
  unsigned a, b, c, d, extended;
  return __get_cpuid(1, &a, &b, &c, &d) && __get_cpuid(0x80000001, &a, &b, &extended, &d) && (c >> 29 & 1) &&
         (extended >> 5 & 1);
}

// Whether the CPU has tiles of bfloat16 and dot products of AVX-512, and the system saves the tiles.
bool has_tiles() {
  unsigned a, b, c, d, later;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
  if (!__get_cpuid_count(7, 1, &later, &b, &c, &d) || !(later >> 5 & 1)) return false;
  constexpr int kGetSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  constexpr uint64_t kTiles = 3 << 17;
  uint64_t states = 0;
  return syscall(SYS_arch_prctl, kGetSupported, &states) == 0 && (states & kTiles) == kTiles;
}

Isa detect() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && has_late_features();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
  if (avx512) return has_tiles() ? Isa::kAmx : Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
  const bool sse4 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  return sse4 ? Isa::kSse4 : Isa::kSse2;
}
#else
Isa detect() { return Isa::kSse2; }
#endif

// Returns the index of PERIGEE_MAX_ISA in kNames; the size of kNames when it is not set, -1 when it is unknown.
int asked() {
  const char* name = setting("PERIGEE_MAX_ISA");
  if (!name || !*name) return int(std::size(kNames));
  const auto* found = std::find(std::begin(kNames), std::end(kNames), std::string_view(name));
  return found == std::end(kNames) ? -1 : int(found - kNames);
}

}  // namespace

Isa isa() {
  static const Isa chosen = [] {
    const int limit = asked();
    return limit < 0 ? detect() : std::min(detect(), Isa(limit));
  }();
  return chosen;
}

const char* isa_name(Isa isa) { return kNames[int(isa)]; }

std::string isa_error() {
  return asked() < 0 ? wrong_setting("PERIGEE_MAX_ISA", "amx, avx512, avx2, sse4 or sse2") : "";
}

}  // namespace pg::cpu

// Highway's library defines these two functions too, but measures the resolution of the clock when it is loaded. That
// would cost every start of the program 3 ms. With these definitions only Highway's headers are used.
namespace hwy {

int64_t SupportedTargets() {
  const pg::cpu::Isa isa = pg::cpu::isa();
  return HWY_STATIC_TARGET | (isa >= pg::cpu::Isa::kSse4 ? HWY_SSE4 : 0) | (isa >= pg::cpu::Isa::kAvx2 ? HWY_AVX2 : 0) |
         (isa >= pg::cpu::Isa::kAvx512 ? HWY_AVX3 : 0);
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
