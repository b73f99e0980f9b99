// The instruction sets that kernels may use: those of the CPU, at most what the environment variable PERIGEE_MAX_ISA
// names. Highway's dispatch, the own kernels and oneDNN all ask here.
#pragma once

namespace pg::cpu {

enum class Isa { kSse2, kSse4, kAvx2, kAvx512 };

// Read once a process. A PERIGEE_MAX_ISA that names no instruction set changes nothing; see isa_error.
Isa isa();

// "sse2", "sse4", "avx2" or "avx512"; "neon" on ARM.
const char* isa_name(Isa isa);

// What is wrong with PERIGEE_MAX_ISA, or nullptr.
const char* isa_error();

}  // namespace pg::cpu
