#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "../device/queue.h"
#include "driver.h"

namespace fake {
namespace {

struct Failing {
  int nth = 0, status = 0, times = 0;
};
std::mutex lock;
std::map<std::string, Failing> failing;
std::map<std::string, int> calls;

int number(const char* variable, int otherwise) {
  const char* given = std::getenv(variable);
  return given ? std::atoi(given) : otherwise;
}

struct Kernel {
  void* module;
  void (*run)(const void*);
  size_t bytes;
  bool waits;
  std::string name;
};
std::map<CUfunction, std::unique_ptr<Kernel>> kernels;

void* stream(CUstream s) { return s; }
template <class T>
void* pointer(T* p) {
  return p;
}
void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

CUresult copy_bytes(CUstream to_stream, void* to, const void* from, size_t bytes) {
  queue::add(stream(to_stream), [=] { std::memcpy(to, from, bytes); });
  return CUDA_SUCCESS;
}

}  // namespace

int arch() { return number("PERIGEE_FAKE_ARCH", 80); }

int failure(const char* function) {
  const std::lock_guard hold(lock);
  const int call = ++calls[function];
  const auto found = failing.find(function);
  if (found == failing.end()) return 0;
  Failing& f = found->second;
  if (--f.nth > 0) return 0;
  (void)call;
  const int status = f.status;
  if (--f.times <= 0) failing.erase(found);
  return status;
}

}  // namespace fake

#pragma GCC visibility push(default)
extern "C" {

void fake_fail(const char* function, int nth, int status, int times) {
  const std::lock_guard hold(fake::lock);
  fake::failing[function] = {nth, status, times};
}
int fake_calls(const char* function) {
  const std::lock_guard hold(fake::lock);
  return fake::calls[function];
}

CUresult cuInit(unsigned) {
  FAKE(cuInit);
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = fake::number("PERIGEE_FAKE_VERSION", 13000);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) { return *count = fake::number("PERIGEE_FAKE_GPUS", 2), CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int i) { return *device = i, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  return std::strncpy(name, "Fake GPU", size_t(size)), CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? fake::arch() / 10
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? fake::arch() % 10
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 1
                                                                   : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE(cuDevicePrimaryCtxRetain);
  return *context = reinterpret_cast<CUcontext>(intptr_t(device) + 1), CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char** text) {
  static const std::map<int, const char*> kTexts = {
      {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
      {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
      {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"}};
  const auto found = kTexts.find(error);
  return *text = found == kTexts.end() ? "a failure of the test" : found->second, CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* made, unsigned) {
  FAKE(cuStreamCreate);
  return *made = static_cast<CUstream>(queue::create_stream(0)), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream s) { return queue::destroy_stream(0, fake::stream(s)), CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) {
  FAKE(cuStreamSynchronize);
  return queue::synchronize(0, fake::stream(s)), CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned) {
  return queue::follow(0, fake::stream(s), event), CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* made, unsigned) {
  return *made = static_cast<CUevent>(queue::create_event(0)), CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { return queue::destroy_event(0, event), CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream s) { return queue::record(0, fake::stream(s), event), CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) { return queue::await(0, event), CUDA_SUCCESS; }

CUresult cuMemAlloc(CUdeviceptr* data, size_t bytes) {
  FAKE(cuMemAlloc_v2);
  void* found = fake::allocate(bytes);
  return *data = reinterpret_cast<CUdeviceptr>(found), found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree(CUdeviceptr data) {
  FAKE(cuMemFree_v2);
  return fake::release(fake::pointer(data)), CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return *free = fake::room(), *total = fake::capacity(), CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** data, size_t bytes, unsigned) { return *data = std::malloc(bytes), CUDA_SUCCESS; }
CUresult cuMemFreeHost(void* data) { return queue::drain(), std::free(data), CUDA_SUCCESS; }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream s) {
  FAKE(cuMemcpyHtoDAsync);
  return fake::copy_bytes(s, fake::pointer(to), from, bytes);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream s) {
  return fake::copy_bytes(s, to, fake::pointer(from), bytes);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
  FAKE(cuMemcpyDtoDAsync);
  return fake::copy_bytes(s, fake::pointer(to), fake::pointer(from), bytes);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream s) {
  return fake::copy_bytes(s, fake::pointer(to), fake::pointer(from), bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s) {
  FAKE(cuMemsetD8Async);
  queue::add(fake::stream(s), [=] { std::memset(fake::pointer(to), value, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE(cuModuleLoadData);
  if (std::string_view(static_cast<const char*>(image), 9) == "\n.version") {
    const bool known = std::strstr(static_cast<const char*>(image), ".visible .entry set_condition(") != nullptr;
    return *module = fake::condition_module(), known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
  }
  const char* bytes = static_cast<const char*>(image);
  if (std::string_view(bytes, 4) == "ptx_") {
    if (std::atoi(bytes + 4) > fake::arch()) return CUDA_ERROR_INVALID_PTX;
    bytes += 8;
  }
  uint64_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  const int file = ::memfd_create("kernel", 0);
  bytes += sizeof size;
  if (::write(file, bytes, size) != ssize_t(size)) return CUDA_ERROR_INVALID_IMAGE;
  void* library = ::dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  // The file stays open: the loader takes files of one name for one library.
  return *module = static_cast<CUmodule>(library), library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (module == fake::condition_module()) return *function = fake::condition_kernel(), CUDA_SUCCESS;
  struct Info {
    size_t bytes;
    int waits;
  };
  void* run = ::dlsym(module, name);
  const auto* info = static_cast<const Info*>(::dlsym(module, ("kernel_" + std::string(name)).c_str()));
  if (!run || !info) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard hold(fake::lock);
  *function = static_cast<CUfunction>(run);
  fake::kernels[*function] = std::make_unique<fake::Kernel>(
      fake::Kernel{module, reinterpret_cast<void (*)(const void*)>(run), info->bytes, info->waits != 0, name});
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, CUstream s, void** arguments, void**) {
  FAKE(cuLaunchKernel);
  if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard hold(fake::lock);
  const fake::Kernel& kernel = *fake::kernels.at(function);
  ++fake::calls[kernel.name];
  const char* argument = static_cast<const char*>(arguments[0]);
  auto kept = std::make_shared<std::vector<uint64_t>>((kernel.bytes + 7) / 8);
  std::memcpy(kept->data(), argument, kernel.bytes);
  queue::add(fake::stream(s),
             [=, &kernel] { fake::run_grid(kernel.module, kernel.run, kernel.waits, blocks, threads, kept->data()); });
  return CUDA_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
