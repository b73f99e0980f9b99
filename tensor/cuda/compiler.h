// Kernels from source: NVRTC compiles a module at its first use; the result is kept in memory, and on disk for other
// processes.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/cuda/gpu.h"
#include "tensor/function_ref.h"

namespace pg::cuda {

// What modules are compiled to: a cubin of an architecture, or PTX, which drivers translate for it and newer ones.
struct Target {
  int arch;
  bool ptx;
};
// Returns a cubin of the architecture or, if NVRTC does not know it, PTX of the newest one before it that NVRTC knows.
// Throws Error if there is none.
Target target_for(int arch);

// Compiles the formulas followed by `source`. Throws Error with the compiler's log.
std::vector<char> compile(const Target& target, std::string_view source);

// Files of the folder $XDG_CACHE_HOME/perigee or ~/.cache/perigee. A file that cannot be read or written or is damaged
// counts as absent.
std::vector<char> read_cached(const std::string& key);  // empty: absent
void write_cached(const std::string& key, const std::vector<char>& data);

// What tells a kernel of a family from the others. Texts are compared by address.
struct KernelKey {
  const char *family, *name;
  const char* words[2] = {};
  uint64_t dtypes = 0;
  bool operator==(const KernelKey&) const = default;
};
struct HashOfKernelKey {
  size_t operator()(const KernelKey& k) const;
};

// The modules of one device.
class Modules {
 public:
  explicit Modules(Gpu& gpu) : gpu_(gpu) {}
  // Returns the kernel `name` of a module. `key` names the module; `source` is called if it is new.
  CUfunction kernel(const std::string& key, const char* name, const std::function<std::string()>& source);
  // Returns the kernel `name` of a module whose PTX is `text`, which lives as long as the process.
  CUfunction kernel_of_text(std::string_view text, const char* name);
  // Returns the kernel of a key; `make` finds it at the first call.
  CUfunction kernel(const KernelKey& key, FunctionRef<CUfunction()> make);

 private:
  Gpu& gpu_;
  std::mutex lock_;
  std::unordered_map<std::string, CUmodule> modules_;
  std::unordered_map<std::string, CUfunction> kernels_;  // by key and name
  std::unordered_map<KernelKey, CUfunction, HashOfKernelKey> known_;
};

}  // namespace pg::cuda
