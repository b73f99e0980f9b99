#include "tensor/cuda/library.h"

#include <dlfcn.h>

#include "tensor/error.h"
#include "tensor/settings.h"

namespace pg::cuda {

Library::Library(const char* variable, std::initializer_list<const char*> names) {
  std::string why;
  const auto open = [&](const std::string& path) {
    path_ = path;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_ && why.empty()) why = dlerror();
    return handle_ != nullptr;
  };
  if (const char* given = setting(variable)) {
    if (open(given)) return;
    throw Error(fmt::format("{} cannot be opened: {} (from {})", given, why, variable));
  }
  for (const char* name : names)
    if (open(name)) return;
  for (const char* name : names)
    if (open(std::string(PERIGEE_CUDA_LIBRARIES) + "/" + name)) return;
  throw Error(fmt::format("{} cannot be opened: {}", *names.begin(), why));
}

void* Library::find(const char* function) const {
  void* found = dlsym(handle_, function);
  if (!found) throw Error(fmt::format("{} has no entry {}", path_, function));
  return found;
}

void fail_call(const char* function, const std::string& why) {
  const std::string name = function;
  const size_t version = name.rfind("_v");
  throw Error(fmt::format("{}: {}", name.substr(0, version), why));
}

}  // namespace pg::cuda
