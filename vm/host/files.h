// open_file of perigee_state_config: all files that a state reads and writes.
#pragma once
#include <lua.hpp>
#include <memory>
#include <string>

#include "tensor/io/host_files.h"
#include "vm/include/perigee.h"

namespace pg::host {

// The files that open_file gives; none if it is not set.
class CallbackFiles : public HostFiles {
 public:
  explicit CallbackFiles(const perigee_state_config& config) : open_(config.open_file), user_(config.user) {}
  std::unique_ptr<HostFile> open(const std::string& path, const char* mode) override;

 private:
  int (*open_)(void* user, const char* path, const char* mode, perigee_file* out);
  void* user_;
};

// Replaces dofile and loadfile in the table on top of the stack by functions that read the files of the thread.
void set_file_functions(lua_State* L, bool text_only);

// A searcher for require: reads name.lua and name/init.lua from the files of the thread, or the files that package.path
// names. Its upvalue: whether bytecode is refused.
int find_file_module(lua_State* L);

}  // namespace pg::host
