#include "tensor/cuda/gpu.h"

#include <mutex>
#include <vector>

#include "tensor/cuda/compiler.h"
#include "tensor/cuda/memory.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

constexpr int kOldestDriver = 12000;

struct Gpus {
  std::mutex lock;
  std::vector<std::unique_ptr<Gpu>> all;
};
Gpus& gpus() {
  static Gpus* instance = new Gpus;  // the driver may end before the plugin
  return *instance;
}

}  // namespace

Gpu::Gpu(int number) : index(number), memory(new Memory(*this)), modules(new Modules(*this)) {
  driver().cuDeviceGet(&device, index);
  driver().cuDevicePrimaryCtxRetain(&context, device);
  char name[256] = "";
  driver().cuDeviceGetName(name, sizeof name, device);
  title = name;
  arch = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  if (arch < 75)
    throw Error(fmt::format("cuda:{} has compute capability {}.{}; 7.5 is needed", index, arch / 10, arch % 10));
}
Gpu::~Gpu() = default;

int Gpu::attribute(CUdevice_attribute which) const {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, which, device);
  return value;
}

int start() {
  driver().cuInit(0);
  int version = 0, count = 0;
  driver().cuDriverGetVersion(&version);
  if (version < kOldestDriver)
    throw Error(fmt::format("the driver is of CUDA {}.{}; 12.0 is needed", version / 1000, version % 1000 / 10));
  driver().cuDeviceGetCount(&count);
  if (count == 0) throw Error("the driver has no device");
  const std::lock_guard hold(gpus().lock);
  gpus().all.resize(size_t(count));
  return count;
}

int gpu_count() { return int(gpus().all.size()); }

Gpu& gpu(int index) {
  Gpu* found = nullptr;
  {
    const std::lock_guard hold(gpus().lock);
    std::unique_ptr<Gpu>& slot = gpus().all.at(size_t(index));
    if (!slot) slot = std::make_unique<Gpu>(index);
    found = slot.get();
  }
  driver().cuCtxSetCurrent(found->context);
  return *found;
}

}  // namespace pg::cuda
