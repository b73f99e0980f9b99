// The instruction sets that kernels may use: those of the CPU, limited by the environment variable PERIGEE_MAX_ISA.
// Highway's dispatch, the other kernels and oneDNN all use this limit.
#pragma once
#include <string>

namespace pg::cpu {

enum class Isa { kSse2, kSse4, kAvx2, kAvx512, kAmx };  // kAmx: tiles of bfloat16 besides AVX-512

// Read once per process. A PERIGEE_MAX_ISA that names no instruction set has no effect here; see isa_error.
Isa isa();

// Returns "sse2", "sse4", "avx2", "avx512" or "amx"; "neon" on ARM.
const char* isa_name(Isa isa);

// Returns what is wrong with PERIGEE_MAX_ISA, or "".
std::string isa_error();

}  // namespace pg::cpu
