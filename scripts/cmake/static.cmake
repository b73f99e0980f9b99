# -DPERIGEE_STATIC=ON: libperigee.so, perigee.so and libperigee.a that need nothing but libc. The C++ library, LuaJIT,
# zlib and fmt are inside. Debian has no static oneDNN; it is loaded at its first use if it is there, and otherwise the
# library's own kernels run (tensor/cpu/onednn/onednn_late.cpp).
add_link_options(-static-libgcc -static-libstdc++)

# Debian has no static fmt either: its functions from the headers. FMT_SHARED is what Debian's fmt defines.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/fmt.cpp" CONTENT "#include <fmt/format-inl.h>
template FMT_API auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
template FMT_API auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
")
add_library(perigee_fmt STATIC "${PROJECT_BINARY_DIR}/fmt.cpp")
target_compile_definitions(perigee_fmt PUBLIC FMT_SHARED)
add_library(fmt::fmt ALIAS perigee_fmt)

# A jump through a slot for each function of oneDNN, and for the two of OpenMP that the adapter calls.
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
target_link_libraries(perigee_dnnl INTERFACE perigee_late)

# libperigee.a: one object whose only global names are those of perigee.h. A host in C links it with -lm -pthread.
function(perigee_archive)
  set(object "${PROJECT_BINARY_DIR}/perigee_all.o")
  set(archive "${PROJECT_BINARY_DIR}/libperigee.a")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.a OUTPUT_VARIABLE cpp
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(parts perigee_graph perigee_tensor perigee_late perigee_fmt)
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  add_custom_command(OUTPUT "${archive}"
    COMMAND "${CMAKE_LINKER}" -r -o "${object}" --whole-archive "$<TARGET_FILE:perigee_vm>" --no-whole-archive
      --start-group ${parts} "${LUAJIT_STATIC_LIBRARY}" "${ZLIB_LIBRARY}" "${cpp}" --end-group
    COMMAND "${CMAKE_OBJCOPY}" -w --keep-global-symbol=perigee_* --keep-global-symbol=luaopen_perigee "${object}"
    COMMAND "${CMAKE_COMMAND}" -E rm -f "${archive}"
    COMMAND "${CMAKE_AR}" rcs "${archive}" "${object}"
    DEPENDS perigee_vm perigee_graph perigee_tensor perigee_late perigee_fmt COMMENT "Linking libperigee.a")
  add_custom_target(perigee_archive ALL DEPENDS "${archive}")
  install(FILES "${archive}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endfunction()
