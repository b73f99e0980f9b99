// A device that exists to prove the seam. Its memory is host memory behind pointers that fault when the host
// follows them, so a core that forgets to copy dies at once. It has few kernels; the rest must come from
// decompositions or be an error.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/kernel.h"
#include "tensor/op.h"

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
    case pg::DType::kFloat32:
      return loop<float>(args, f);
    case pg::DType::kFloat64:
      return loop<double>(args, f);
    default:
      throw pg::Error("test_device: computes in float32 and float64 only");
  }
}

// Which dims the attribute `dim` of a sum names; all when it is absent or empty. The core's own readers are out of
// reach for a plugin.
void mark_reduced(const pg::KernelArgs& args, bool* reduced) {
  const int rank = args.in[0].rank();
  const pg::Ints* dims = nullptr;
  for (size_t i = 0; i < args.attrs.size(); ++i)
    if (!std::strcmp(args.op.attrs[i].name, "dim")) dims = std::get_if<pg::Ints>(&args.attrs[i]);
  for (int d = 0; d < rank; ++d) reduced[d] = !dims || dims->empty();
  if (dims)
    for (int64_t d : *dims) reduced[d > 0 ? d - 1 : d + rank] = true;
}

// Calls f(flat index, coordinates) for all elements of a shape in row-major order.
template <class F>
void each_element(const pg::Dims& shape, F f) {
  int64_t total = 1, at[pg::kMaxRank];
  for (int64_t d : shape) total *= d;
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i;
    for (int d = shape.size() - 1; d >= 0; --d) {
      at[d] = rest % shape[d];
      rest /= shape[d];
    }
    f(i, at);
  }
}

template <class T>
void sum_of(const pg::KernelArgs& args) {
  const pg::Dims& shape = args.in[0].shape();
  bool reduced[pg::kMaxRank];
  mark_reduced(args, reduced);
  int64_t results = 1;
  for (int64_t d : args.out[0].shape()) results *= d;
  T* out = plain<T>(args.out[0]);
  for (int64_t i = 0; i < results; ++i) out[i] = 0;
  each_element(shape, [&](int64_t i, const int64_t* at) {
    int64_t to = 0;
    for (int d = 0; d < shape.size(); ++d)
      if (!reduced[d]) to = to * shape[d] + at[d];
    out[to] += plain<T>(args.in[0])[i];
  });
}

void sum(const pg::KernelArgs& args) {
  switch (args.in[0].dtype()) {
    case pg::DType::kFloat32:
      return sum_of<float>(args);
    case pg::DType::kFloat64:
      return sum_of<double>(args);
    default:
      throw pg::Error("test_device: computes in float32 and float64 only");
  }
}

void contiguous(const pg::KernelArgs& args) {
  const pg::View& x = args.in[0];
  const int64_t size = pg::size_of(x.dtype());
  each_element(x.shape(), [&](int64_t i, const int64_t* at) {
    int64_t from = 0;
    for (int d = 0; d < x.rank(); ++d) from += at[d] * (*x.strides)[d];
    std::memcpy(plain<char>(args.out[0]) + i * size, plain<char>(x) + from * size, size_t(size));
  });
}

const pg::KernelRow kRows[] = {
    {"contiguous", contiguous, pg::kStridedInputs},
    {"sum", sum},
    {"add", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto y) { return x + y; }); }},
    {"mul", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto y) { return x * y; }); }},
    {"neg", [](const pg::KernelArgs& a) { pointwise(a, [](auto x, auto) { return -x; }); }},
};

// With PERIGEE_TEST_DEVICE=full it has the kernels of the CPU instead, which get its memory by addresses that they may
// follow.
void by_host(const pg::KernelArgs& a) {
  std::vector<pg::View> in(a.in.begin(), a.in.end()), out(a.out.begin(), a.out.end());
  for (std::vector<pg::View>* views : {&in, &out})
    for (pg::View& v : *views) v.data = plain(v.data);
  auto allocate = [&](int i, const pg::Dims& shape) {
    pg::View v = a.allocate(i, shape);
    v.data = plain(v.data);
    return v;
  };
  a.op.cpu_kernel.fn(pg::KernelArgs{a.op, in, out, a.attrs, allocate});
}

pg::KernelRow host_kernel(const pg::OpDef& op) {
  return {op.name, op.cpu_kernel.fn && !op.has(pg::kEffect) ? by_host : nullptr, op.cpu_kernel.flags};
}

const pg::DeviceTable kTable = {
    .name = "test_device",
    .count = [] { return kCount; },
    .allocate = allocate,
    .release = release,
    .copy_in = [](int, void* to, const void* from, size_t bytes) { std::memcpy(plain(to), from, bytes); },
    .copy_out = [](int, void* to, const void* from, size_t bytes) { std::memcpy(to, plain(from), bytes); },
    .copy = [](int, void* to, const void* from, size_t bytes) { std::memcpy(plain(to), plain(from), bytes); },
    .clear = [](int, void* to, size_t bytes) { std::memset(plain(to), 0, bytes); },
    .synchronize = [](int) {},
    .kernels = kRows,
};

const pg::DeviceTable* full_table() {
  static pg::DeviceTable table;
  table = kTable;
  table.kernels = {};
  table.kernel_for = host_kernel;
  return &table;
}

// Faults that the tests ask for in the environment.
const pg::DeviceTable* faulty_table(const char* fault) {
  static pg::DeviceTable table;
  static const pg::KernelRow unknown[] = {{"no_such_op", contiguous}};
  table = kTable;
  table.name = fault;
  if (!std::strcmp(fault, "oldtable")) table.abi = pg::kDeviceAbi + 1;
  if (!std::strcmp(fault, "incomplete")) table.copy_out = nullptr;
  if (!std::strcmp(fault, "unknownop")) table.kernels = unknown;
  if (!std::strcmp(fault, "refuses")) return nullptr;
  return &table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pg::DeviceTable* perigee_device(uint32_t abi) {
  if (const char* fault = std::getenv("PERIGEE_TEST_DEVICE_FAULT")) return faulty_table(fault);
  if (abi != pg::kDeviceAbi) return nullptr;
  return std::getenv("PERIGEE_TEST_DEVICE") ? full_table() : &kTable;
}
