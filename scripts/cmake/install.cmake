# cmake --install: the program, the library of hosts with its headers, the Lua module, and what finds them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS perigee RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS perigee_module LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/lua/5.1")
install(TARGETS perigee_shared EXPORT perigee LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY vm/include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# Devices. The loader finds them from the place of the program or library.
if(TARGET perigee_cuda)
  install(TARGETS perigee_cuda LIBRARY DESTINATION lib/perigee)
endif()

# The program writes its manual page and the completions of shells, from its table of options. A cross build does so only
# with an emulator.
if(PERIGEE_SANITIZE OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  message(STATUS "No manual page and no completions: this build does not run the program")
else()
  set(documents "${PROJECT_BINARY_DIR}/documents")
  file(MAKE_DIRECTORY "${documents}")
  function(perigee_document kind name folder)
    add_custom_command(OUTPUT "${documents}/${name}" DEPENDS perigee
      COMMAND perigee --generate ${kind} > "${documents}/${name}" VERBATIM)
    set_property(GLOBAL APPEND PROPERTY perigee_documents "${documents}/${name}")
    install(FILES "${documents}/${name}" DESTINATION "${folder}")
  endfunction()
  perigee_document(man perigee.1 "${CMAKE_INSTALL_MANDIR}/man1")
  perigee_document(bash perigee "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  set(PERIGEE_ZSH_FOLDER "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" CACHE STRING "Where the completion for zsh goes")
  perigee_document(zsh _perigee "${PERIGEE_ZSH_FOLDER}")
  get_property(files GLOBAL PROPERTY perigee_documents)
  add_custom_target(perigee_documents ALL DEPENDS ${files})
endif()

# find_package(perigee CONFIG) gives perigee::perigee.
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/perigee")
install(EXPORT perigee NAMESPACE perigee:: DESTINATION "${package}" FILE perigeeConfig.cmake)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/perigeeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/perigeeConfigVersion.cmake" DESTINATION "${package}")

# The prefix is found from the place of the file, so the folder may be moved.
file(RELATIVE_PATH to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/perigee.pc" @ONLY CONTENT "prefix=\${pcfiledir}/@to_prefix@
libdir=\${prefix}/@CMAKE_INSTALL_LIBDIR@
Name: perigee
Description: Lua with autodiff tensors, for hosts
Version: @PROJECT_VERSION@
Cflags: -I\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L\${libdir} -lperigee
")
install(FILES "${PROJECT_BINARY_DIR}/perigee.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
