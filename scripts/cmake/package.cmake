# cpack: a Debian package of what cmake --install installs. scripts/package/deb configures for it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME perigee)
set(CPACK_PACKAGE_CONTACT "The perigee developers <perigee@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Lua with autodiff tensors: a program, a library for hosts and a Lua module")
set(CPACK_DEBIAN_PACKAGE_SECTION interpreters)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)       # dependencies from the libraries that the binaries name
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdnnl${PERIGEE_DNNL_MAJOR}, libsleef3")  # which are loaded late
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # and what depends on libperigee.so finds this package
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)

# LuaRocks: the file's name must have the version.
configure_file("${PROJECT_SOURCE_DIR}/scripts/package/perigee.rockspec.in"
  "${PROJECT_BINARY_DIR}/perigee-${PROJECT_VERSION}-1.rockspec" @ONLY)
