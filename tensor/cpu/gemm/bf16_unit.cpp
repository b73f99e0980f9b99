// Which instructions multiply bfloat16.
#include <hwy/base.h>

#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/isa.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pg::cpu {
namespace {

#if HWY_ARCH_X86
// Asks Linux for the tiles. It refuses where the signal stack of a thread is too small for their contents.
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return isa() >= Isa::kAmx && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

bool has_pairs() {
  unsigned a, b, c, d;
  return isa() >= Isa::kAvx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

// On Intel's cores float32 products are twice as fast as those of pairs (1.6 cycles for one of 512 bits on a Xeon with
// AMX), on AMD's half as fast.
bool pairs_are_fast() {
  unsigned a, b, c, d;
  return __get_cpuid(0, &a, &b, &c, &d) && b != signature_INTEL_ebx;
}
#else
bool may_use_tiles() { return false; }
bool has_pairs() { return false; }
bool pairs_are_fast() { return false; }
#endif

Bf16Unit chosen_unit() {
  if (may_use_tiles()) return Bf16Unit::kTiles;
  return has_pairs() && pairs_are_fast() ? Bf16Unit::kPairs : Bf16Unit::kNone;
}

Bf16Unit& unit() {
  static Bf16Unit unit = chosen_unit();
  return unit;
}

}  // namespace

Bf16Unit bf16_unit() { return unit(); }

bool use_bf16_unit(Bf16Unit asked) {
  if ((asked == Bf16Unit::kTiles && !may_use_tiles()) || (asked == Bf16Unit::kPairs && !has_pairs())) return false;
  unit() = asked;
  return true;
}

}  // namespace pg::cpu
