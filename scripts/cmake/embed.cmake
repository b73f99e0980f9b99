# perigee_embed(TARGET FOLDER) adds the table of vm/embedded.h to TARGET, with the Lua files and data/ files of FOLDER.
# The assembler includes their bytes, so no generator runs at build time. A new file makes CMake configure again.
function(perigee_embed target folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/*.lua" "${folder}/data/*")
  list(FILTER files EXCLUDE REGEX "^meta/")  # stubs for editors
  list(REMOVE_DUPLICATES files)
  list(SORT files COMPARE STRING)
  set(bytes ".section .rodata\n")
  set(externs "")
  set(rows "")
  set(paths "")
  set(i 0)
  foreach(file IN LISTS files)
    string(APPEND bytes ".globl pg_embedded_${i}\n.hidden pg_embedded_${i}\n.balign 16\npg_embedded_${i}:\n"
      ".incbin \"${folder}/${file}\"\n.byte 0\n"
      ".globl pg_embedded_end_${i}\n.hidden pg_embedded_end_${i}\n.set pg_embedded_end_${i}, . - 1\n")
    string(APPEND externs "HIDDEN extern const unsigned char pg_embedded_${i}[], pg_embedded_end_${i}[];\n")
    string(APPEND rows "    {\"${file}\", pg_embedded_${i}, size_t(pg_embedded_end_${i} - pg_embedded_${i})},\n")
    list(APPEND paths "${folder}/${file}")
    math(EXPR i "${i} + 1")
  endforeach()
  string(APPEND bytes ".section .note.GNU-stack,\"\",@progbits\n")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/embedded")
  file(CONFIGURE OUTPUT "${out}/bytes.S" CONTENT "${bytes}" @ONLY)
  file(CONFIGURE OUTPUT "${out}/table.cpp" @ONLY CONTENT "#include \"vm/embedded.h\"
#define HIDDEN __attribute__((visibility(\"hidden\")))
extern \"C\" {
${externs}}
namespace pg {
std::span<const EmbeddedFile> embedded_files() {
  static const EmbeddedFile files[] = {
${rows}    {nullptr, nullptr, 0}};
  return {files, ${i}};
}
}  // namespace pg
")
  set_source_files_properties("${out}/bytes.S" PROPERTIES OBJECT_DEPENDS "${paths}")
  target_sources(${target} PRIVATE "${out}/bytes.S" "${out}/table.cpp")
endfunction()
