#include "tensor/cuda/compiler.h"

#include <algorithm>

#include "tensor/cuda/nvrtc.h"
#include "tensor/error.h"
#include "tensor/kernels/cuda_source.h"
#include "tensor/settings.h"

namespace pg::cuda {
namespace {

// --fmad=false: arithmetic rounds as on the CPU. 186 and 550: formulas serve several types.
constexpr const char* kOptions[] = {"--std=c++20", "--device-as-default-execution-space", "--fmad=false",
                                    "--diag-suppress=177,186,550"};

class Program {
 public:
  explicit Program(const std::string& text) {
    nvrtc().nvrtcCreateProgram(&handle_, text.c_str(), "perigee.cu", 0, nullptr, nullptr);
  }
  ~Program() { nvrtc().nvrtcDestroyProgram.status(&handle_); }
  Program(const Program&) = delete;
  nvrtcProgram get() const { return handle_; }

 private:
  nvrtcProgram handle_ = nullptr;
};

std::string log_of(nvrtcProgram program) {
  size_t size = 0;
  nvrtc().nvrtcGetProgramLogSize(program, &size);
  std::string text(size, '\0');
  nvrtc().nvrtcGetProgramLog(program, text.data());
  return text.substr(0, text.find('\0'));
}

// Two FNV-1a hashes of other starts, as text.
std::string hash_of(std::string_view text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
  for (const char c : text) {
    a = (a ^ uint8_t(c)) * 0x100000001b3u;
    b = (b ^ uint8_t(c)) * 0x100000001b3u + (b >> 29);
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

std::string name_of(const Target& t) { return fmt::format("{}_{}", t.ptx ? "compute" : "sm", t.arch); }

// What the result depends on.
std::string key_of(const Target& target, std::string_view source) {
  static const std::string fixed = [] {
    std::string text = fmt::format("{} {} ", CUDA_VERSION, PERIGEE_VERSION);
    if (const char* compiler = setting("PERIGEE_CUDA_NVRTC")) text += compiler;
    for (const char* option : kOptions) text += option;
    return hash_of(text += cuda_formulas());
  }();
  return fmt::format("{}-{}", name_of(target), hash_of(fmt::format("{} {}", fixed, source)));
}

// A cubin of the architecture needs no NVRTC if it is on disk. PTX does, as NVRTC may have learned the architecture.
std::vector<char> compiled_or_cached(int arch, const std::string& source) {
  Target target{arch, false};
  std::vector<char> binary = read_cached(key_of(target, source));
  if (!binary.empty()) return binary;
  target = target_for(arch);
  if (target.ptx) binary = read_cached(key_of(target, source));
  if (!binary.empty()) return binary;
  binary = compile(target, source);
  write_cached(key_of(target, source), binary);
  return binary;
}

}  // namespace

Target target_for(int arch) {
  int count = 0;
  nvrtc().nvrtcGetNumSupportedArchs(&count);
  std::vector<int> known(size_t(count), 0);
  nvrtc().nvrtcGetSupportedArchs(known.data());
  int newest = 0;
  for (const int a : known)
    if (a <= arch) newest = std::max(newest, a);
  if (newest == 0)
    throw Error(fmt::format("cuda: NVRTC {}.{} compiles for newer architectures than sm_{} only", nvrtc().version[0],
                            nvrtc().version[1], arch));
  return {newest, newest != arch};
}

std::vector<char> compile(const Target& to, std::string_view source) {
  const Program program(fmt::format("{}{}", cuda_formulas(), source));
  const std::string target = "--gpu-architecture=" + name_of(to);
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  if (nvrtc().nvrtcCompileProgram.status(program.get(), int(options.size()), options.data()) != NVRTC_SUCCESS)
    throw Error(fmt::format("cuda: a kernel does not compile for {}: {}", name_of(to), log_of(program.get())));
  size_t size = 0;
  to.ptx ? nvrtc().nvrtcGetPTXSize(program.get(), &size) : nvrtc().nvrtcGetCUBINSize(program.get(), &size);
  std::vector<char> binary(size);
  to.ptx ? nvrtc().nvrtcGetPTX(program.get(), binary.data()) : nvrtc().nvrtcGetCUBIN(program.get(), binary.data());
  return binary;
}

size_t HashOfKernelKey::operator()(const KernelKey& k) const {
  uint64_t hash = k.dtypes;
  for (const char* text : {k.family, k.name, k.words[0], k.words[1]})
    hash = (hash ^ reinterpret_cast<uintptr_t>(text)) * 0x9e3779b97f4a7c15u;
  return hash >> 16;
}

CUfunction Modules::kernel(const KernelKey& key, FunctionRef<CUfunction()> make) {
  {
    const std::lock_guard hold(lock_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  const CUfunction made = make();
  const std::lock_guard hold(lock_);
  return known_[key] = made;
}

CUfunction Modules::kernel_of_text(std::string_view text, const char* name) {
  const KernelKey key{text.data(), name};
  return kernel(key, [&] {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    driver().cuModuleLoadData(&module, text.data());
    driver().cuModuleGetFunction(&function, module, name);
    return function;
  });
}

CUfunction Modules::kernel(const std::string& key, const char* name, const std::function<std::string()>& source) {
  const std::lock_guard hold(lock_);
  CUfunction& function = kernels_[key + '/' + name];
  if (function) return function;
  CUmodule& module = modules_[key];
  if (!module) driver().cuModuleLoadData(&module, compiled_or_cached(gpu_.arch, source()).data());
  driver().cuModuleGetFunction(&function, module, name);
  return function;
}

}  // namespace pg::cuda
