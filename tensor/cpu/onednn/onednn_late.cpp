// oneDNN is loaded at its first use, if it is there. scripts/cmake/onednn.cmake generates a jump for each of its
// functions, through a slot that is filled here.
#include <dlfcn.h>

#include <string>

#include "tensor/cpu/onednn/onednn_common.h"

extern "C" {
extern void* pg_late_slots[];
extern const char* const pg_late_names[];  // of the slots; the last is null
}

namespace pg::cpu::onednn {

static bool load() {
  const std::string name = "libdnnl.so." + std::to_string(DNNL_VERSION_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return false;
  for (size_t i = 0; pg_late_names[i]; ++i)
    if (!(pg_late_slots[i] = dlsym(library, pg_late_names[i]))) return false;
  return true;
}

bool available() {
  static const bool loaded = load();
  return loaded;
}

}  // namespace pg::cpu::onednn
