#include "tensor/cpu/sleef.h"

#include <dlfcn.h>

namespace pg::cpu {

void* sleef_function(const char* name) {
  static void* const library = dlopen("libsleef.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return library ? dlsym(library, name) : nullptr;
}

}  // namespace pg::cpu
