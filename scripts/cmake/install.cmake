# cmake --install: the program, the library of hosts with its headers, the Lua module, and what finds them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS perigee RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS perigee_module LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/lua/5.1")
install(TARGETS perigee_shared EXPORT perigee LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY vm/include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# find_package(perigee CONFIG) gives perigee::perigee.
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/perigee")
install(EXPORT perigee NAMESPACE perigee:: DESTINATION "${package}" FILE perigeeConfig.cmake)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/perigeeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/perigeeConfigVersion.cmake" DESTINATION "${package}")

# The prefix is found from the place of the file, so the folder may be moved.
file(RELATIVE_PATH to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/perigee.pc" @ONLY CONTENT "prefix=\${pcfiledir}/@to_prefix@
Name: perigee
Description: Lua with autodiff tensors, for hosts
Version: @PROJECT_VERSION@
Cflags: -I\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L\${prefix}/@CMAKE_INSTALL_LIBDIR@ -lperigee
")
install(FILES "${PROJECT_BINARY_DIR}/perigee.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
