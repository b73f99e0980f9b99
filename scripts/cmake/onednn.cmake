# oneDNN is loaded at its first use (tensor/cpu/onednn/onednn_late.cpp): it takes 3 MB and a millisecond that most scripts
# do not need, and a machine without it can run the rest. This makes a jump through a slot for each of its functions, and
# for the two of OpenMP by which the adapter keeps it on the calling thread.
file(READ "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl.h" header)
string(REGEX MATCHALL "DNNL_API[ \n*]+dnnl_[a-z0-9_]+" names "${header}")
list(TRANSFORM names REPLACE "DNNL_API[ \n*]+" "")
list(APPEND names omp_get_max_threads omp_set_num_threads)
list(REMOVE_DUPLICATES names)
set(code "")
set(slots "")
set(texts "")
set(at 0)
foreach(name IN LISTS names)
  string(APPEND code ".globl ${name}\n.hidden ${name}\n.type ${name}, @function\n${name}: JUMP(${at})\n")
  string(APPEND texts ".section .rodata.str1.1, \"aMS\", @progbits, 1\n1: .asciz \"${name}\"\n.section .data.rel.ro, \"aw\"\n.quad 1b\n")
  math(EXPR at "${at} + 8")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/late.S" @ONLY CONTENT "#if defined(__aarch64__)
#define JUMP(at) adrp x16, pg_late_slots + at; ldr x16, [x16, :lo12:pg_late_slots + at]; br x16
#else
#define JUMP(at) jmp *pg_late_slots + at(%rip)
#endif
.text
@code@.globl pg_late_slots
.hidden pg_late_slots
.bss
.balign 16
pg_late_slots: .zero @at@
.globl pg_late_names
.hidden pg_late_names
.section .data.rel.ro, \"aw\"
.balign 16
pg_late_names:
@texts@.quad 0
.section .note.GNU-stack, \"\", @progbits
")
add_library(perigee_late STATIC "${PROJECT_BINARY_DIR}/late.S")

file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" line REGEX "define DNNL_VERSION_MAJOR")
string(REGEX REPLACE "[^0-9]" "" PERIGEE_DNNL_MAJOR "${line}")
