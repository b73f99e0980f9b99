# -DPERIGEE_STATIC=ON: libperigee.so, perigee.so and libperigee.a that need nothing but libc. The C++ library, LuaJIT,
# zlib and fmt are inside. oneDNN is loaded at its first use if it is there, as in all builds; otherwise the library's own
# kernels run.
add_link_options(-static-libgcc -static-libstdc++)

# Debian has no static fmt either: its functions from the headers. FMT_SHARED is what Debian's fmt defines.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/fmt.cpp" CONTENT "#include <fmt/format-inl.h>
template FMT_API auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
template FMT_API auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
")
add_library(perigee_fmt STATIC "${PROJECT_BINARY_DIR}/fmt.cpp")
target_compile_definitions(perigee_fmt PUBLIC FMT_SHARED)
add_library(fmt::fmt ALIAS perigee_fmt)

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
