// A device that exists to prove the seam. Its memory is host memory behind pointers that fault when the host
// follows them, so a core that forgets to copy dies at once. It has few kernels; the rest must come from
// decompositions or be an error.
#include <cstdlib>
#include <cstring>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/kernel.h"

namespace {

constexpr uintptr_t kTag = uintptr_t(1) << 62;  // not a canonical address
constexpr int kCount = 2;
constexpr size_t kMemory = size_t(64) << 20;
size_t used[kCount];

void* tagged(void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) | kTag); }
template <class T>
T* plain(const pg::View& v) {  // numbers of a call come untagged
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(v.data) & ~kTag);
}
void* plain(const void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) & ~kTag); }

void* allocate(int index, size_t bytes) {
  if (bytes > kMemory - used[index]) return nullptr;
  void* p = std::malloc(bytes);
  if (!p) return nullptr;
  used[index] += bytes;
  return tagged(p);
}

void release(int index, void* data, size_t bytes) {
  used[index] -= bytes ? bytes : 1;
  std::free(plain(data));
}

// Element by element with broadcasting; the core hands over contiguous inputs.
template <class T, class F>
void loop(const pg::KernelArgs& args, F f) {
  const pg::View& out = args.out[0];
  const pg::View& x = args.in[0];
  const pg::View& y = args.in.back();
  const pg::Dims& shape = out.shape();
  int64_t total = 1;
  for (int64_t d : shape) total *= d;
  auto at = [&](const pg::View& v, int64_t flat) {
    int64_t offset = 0, stride = 1;
    for (int d = shape.size() - 1, e = v.rank() - 1; e >= 0; --d, --e) {
      if (v.size(e) != 1) offset += flat % shape[d] * stride;
      stride *= v.size(e);
      flat /= shape[d];
    }
    return plain<T>(v)[offset];
  };
  for (int64_t i = 0; i < total; ++i) plain<T>(out)[i] = f(at(x, i), at(y, i));
}

template <class F>
void pointwise(const pg::KernelArgs& args, F f) {
  switch (args.out[0].dtype()) {
    case pg::DType::kFloat32: return loop<float>(args, f);
    case pg::DType::kFloat64: return loop<double>(args, f);
    default: throw pg::Error("test_device: computes in float32 and float64 only");
  }
}

const pg::KernelRow kRows[] = {
    {"add", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto y) { return x + y; }); }},
    {"mul", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto y) { return x * y; }); }},
    {"neg", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto) { return -x; }); }},
};

const pg::DeviceTable kTable = {
    .name = "test_device",
    .count = [] { return kCount; },
    .allocate = allocate,
    .release = release,
    .copy_in = [](int, void* to, const void* from, size_t bytes) { std::memcpy(plain(to), from, bytes); },
    .copy_out = [](int, void* to, const void* from, size_t bytes) { std::memcpy(to, plain(from), bytes); },
    .synchronize = [](int) {},
    .kernels = kRows,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const pg::DeviceTable* perigee_device(uint32_t abi) {
  return abi == pg::kDeviceAbi ? &kTable : nullptr;
}
