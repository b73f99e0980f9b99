#include "tensor/cuda/compiler.h"

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

// What the result depends on.
std::string key_of(int arch, std::string_view source) {
  static const std::string fixed = [] {
    std::string text = fmt::format("{} {} ", CUDA_VERSION, PERIGEE_VERSION);
    if (const char* compiler = setting("PERIGEE_CUDA_NVRTC")) text += compiler;
    for (const char* option : kOptions) text += option;
    return hash_of(text += cuda_formulas());
  }();
  return fmt::format("sm_{}-{}", arch, hash_of(fmt::format("{} {}", fixed, source)));
}

std::vector<char> compiled_or_cached(int arch, const std::string& source) {
  const std::string key = key_of(arch, source);
  std::vector<char> binary = read_cached(key);
  if (!binary.empty()) return binary;
  binary = compile(arch, source);
  write_cached(key, binary);
  return binary;
}

}  // namespace

std::vector<char> compile(int arch, std::string_view source) {
  const Program program(fmt::format("{}{}", cuda_formulas(), source));
  const std::string target = fmt::format("--gpu-architecture=sm_{}", arch);
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  if (nvrtc().nvrtcCompileProgram.status(program.get(), int(options.size()), options.data()) != NVRTC_SUCCESS)
    throw Error(fmt::format("cuda: a kernel does not compile for sm_{}: {}", arch, log_of(program.get())));
  size_t size = 0;
  nvrtc().nvrtcGetCUBINSize(program.get(), &size);
  std::vector<char> binary(size);
  nvrtc().nvrtcGetCUBIN(program.get(), binary.data());
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
