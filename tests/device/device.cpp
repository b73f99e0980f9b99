// A device plugin for tests of the device interface. Its memory is host memory behind tagged pointers, which fault when
// the host follows them: a core that forgets a copy crashes at once. All work is done late (queue.h). The device has
// few kernels; other ops must be decomposed or throw.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "queue.h"
#include "tensor/device_abi.h"
#include "tensor/op.h"

namespace {

constexpr uintptr_t kTag = uintptr_t(1) << 62;  // not a canonical address
constexpr int kCount = 2;
constexpr size_t kMemory = size_t(64) << 20;
std::atomic<size_t> used[kCount];

void* tagged(void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) | kTag); }
template <class T>
T* plain(const pg::View& v) {  // numbers among the inputs have untagged pointers
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(v.data) & ~kTag);
}
void* plain(const void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) & ~kTag); }

void* allocate(int index, void*, size_t bytes) {
  if (bytes > kMemory - used[index]) queue::drain();
  if (bytes > kMemory - used[index]) return nullptr;
  void* p = std::malloc(bytes);
  if (!p) return nullptr;
  used[index] += bytes;
  return tagged(p);
}

void release(int index, void* stream, void* data, size_t bytes) {
  const auto work = [=] {
    used[index] -= bytes;
    std::free(plain(data));
  };
  queue::add(stream, work, nullptr, true);
}

void move_bytes(void* stream, void* to, const void* from, size_t bytes) {
  queue::add(stream, [=] { std::memcpy(plain(to), plain(from), bytes); });
}

// Copies of a call's views for work that is done later: own types and strides, and numbers of the host by value.
struct KeptViews {
  explicit KeptViews(std::span<const pg::View> from) : types(from.size()), strides(from.size()), views(from.size()) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (!from[i]) continue;
      types[i] = *from[i].type;
      strides[i] = *from[i].strides;
      views[i] = {&types[i], &strides[i], from[i].data};
      if (!types[i].device.is_cpu()) continue;
      const auto bytes = size_t(from[i].numel() * pg::size_of(from[i].dtype()));
      numbers.emplace_back(new char[bytes]);
      views[i].data = std::memcpy(numbers.back().get(), from[i].data, bytes);
    }
  }
  KeptViews(const KeptViews&) = delete;
  std::vector<pg::Type> types;
  std::vector<pg::Dims> strides;
  std::vector<pg::View> views;
  std::vector<std::unique_ptr<char[]>> numbers;
};

// Queues the call of a kernel.
void call_late(const pg::KernelArgs& a, pg::KernelFn fn) {
  const auto in = std::make_shared<KeptViews>(a.in), out = std::make_shared<KeptViews>(a.out);
  const auto work = [in, out, &op = a.op, attrs = a.attrs, fn] {
    const auto no_allocation = [](int, const pg::Dims&) -> pg::View { return {}; };
    fn(pg::KernelArgs{op, in->views, out->views, attrs, no_allocation});
  };
  queue::add(a.stream, work, a.place);
}
template <pg::KernelFn fn>
void late(const pg::KernelArgs& a) {
  call_late(a, fn);
}

// Works element by element with broadcasting. The core passes contiguous inputs.
template <class T, class F>
void loop(const pg::KernelArgs& args, F f) {
  const pg::View& out = args.out[0];
  const pg::View& x = args.in[0];
  const pg::View& y = args.in.back();
  const pg::Dims& shape = out.shape();
  const int64_t total = pg::numel(shape);
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

// Calls f(flat index, coordinates) for all elements of a shape in row-major order.
template <class F>
void each_element(const pg::Dims& shape, F f) {
  const int64_t total = pg::numel(shape);
  int64_t at[pg::kMaxRank];
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
  bool reduced[pg::kMaxRank] = {};
  for (int64_t d : args.dims("dim", shape.size())) reduced[d] = true;
  const int64_t results = args.out[0].numel();
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

void add(const pg::KernelArgs& a) {
  pointwise(a, [](auto x, auto y) { return x + y; });
}
void mul(const pg::KernelArgs& a) {
  pointwise(a, [](auto x, auto y) { return x * y; });
}
void neg(const pg::KernelArgs& a) {
  pointwise(a, [](auto x, auto) { return -x; });
}
// Throws late for negative numbers.
void sqrt_of(const pg::KernelArgs& a) {
  pointwise(a, [](auto x, auto) {
    if (x < 0) throw pg::Error("sqrt: a negative number");
    return decltype(x)(std::sqrt(x));
  });
}

const pg::KernelRow kRows[] = {
    {"contiguous", late<contiguous>, pg::kStridedInputs},
    {"sum", late<sum>},
    {"add", late<add>},
    {"mul", late<mul>},
    {"neg", late<neg>},
    {"sqrt", late<sqrt_of>},
};

bool computes_floats(const pg::OpDef& op, std::span<const pg::Type> inputs) {
  for (const pg::Type& type : inputs)
    if (std::strcmp(op.name, "contiguous") && type.dtype != pg::DType::kFloat32 && type.dtype != pg::DType::kFloat64)
      return false;
  return true;
}

// With PERIGEE_TEST_DEVICE=full the device has all kernels and fused bodies of the CPU, which get untagged addresses.
void untag(KeptViews& kept) {
  for (pg::View& v : kept.views) v.data = plain(v.data);
}

void by_host(const pg::KernelArgs& a) {
  const auto in = std::make_shared<KeptViews>(a.in), out = std::make_shared<KeptViews>(a.out);
  untag(*in), untag(*out);
  if (a.op.has(pg::kDynamicShape)) {
    queue::synchronize(0, a.stream);
    const auto allocate = [&](int i, const pg::Dims& shape) {
      pg::View v = a.allocate(i, shape);
      v.data = plain(v.data);
      return v;
    };
    return a.op.cpu_kernel.fn(pg::KernelArgs{a.op, in->views, out->views, a.attrs, allocate});
  }
  const auto work = [in, out, &op = a.op, attrs = a.attrs] {
    const auto no_allocation = [](int, const pg::Dims&) -> pg::View { return {}; };
    op.cpu_kernel.fn(pg::KernelArgs{op, in->views, out->views, attrs, no_allocation});
  };
  queue::add(a.stream, work, a.place);
}

pg::KernelRow host_kernel(const pg::OpDef& op) {
  const bool moves = !std::strcmp(op.name, "to");  // the core copies between devices
  return {op.name, op.cpu_kernel.fn && !moves && !op.has(pg::kEffect) ? by_host : nullptr, op.cpu_kernel.flags};
}

class LateTiles final : public pg::TileKernel {
 public:
  explicit LateTiles(std::shared_ptr<const pg::TileKernel> host) : host_(std::move(host)) {}
  void run(std::span<const pg::View> in, std::span<const pg::View> out, void* stream) const override {
    const auto kept_in = std::make_shared<KeptViews>(in), kept_out = std::make_shared<KeptViews>(out);
    untag(*kept_in), untag(*kept_out);
    queue::add(stream, [kept_in, kept_out, host = host_] { host->run(kept_in->views, kept_out->views); });
  }

 private:
  std::shared_ptr<const pg::TileKernel> host_;
};

const pg::DeviceTable* host_table;

// Does not compile large bodies, as a real device may not.
std::shared_ptr<const pg::TileKernel> compile(int, const pg::TileBody& body) {
  constexpr size_t kMaxValues = 24;
  if (body.values.size() > kMaxValues) return nullptr;
  return std::make_shared<LateTiles>(host_table->compile(0, body));
}

const pg::DeviceTable kTable = {
    .abi = pg::kDeviceAbi,
    .name = "test_device",
    .count = [] { return kCount; },
    .create_stream = queue::create_stream,
    .destroy_stream = queue::destroy_stream,
    .synchronize = queue::synchronize,
    .create_event = queue::create_event,
    .destroy_event = queue::destroy_event,
    .record = queue::record,
    .follow = queue::follow,
    .await = queue::await,
    .allocate = allocate,
    .release = release,
    .copy_in = [](int, void* stream, void* to, const void* from, size_t bytes) { move_bytes(stream, to, from, bytes); },
    .copy_out = [](int, void* stream, void* to, const void* from,
                   size_t bytes) { move_bytes(stream, to, from, bytes); },
    .copy = [](int, void* stream, void* to, const void* from, size_t bytes) { move_bytes(stream, to, from, bytes); },
    .clear = [](int, void* stream, void* to,
                size_t bytes) { queue::add(stream, [=] { std::memset(plain(to), 0, bytes); }); },
    .copy_between = [](int, void* stream, void* to, int, const void* from,
                       size_t bytes) { move_bytes(stream, to, from, bytes); },
    .allocate_pinned = [](size_t bytes) { return std::malloc(bytes); },
    .release_pinned = [](void* data, size_t) { std::free(data); },
    .kernels = kRows,
    .supports = computes_floats,
};

const pg::DeviceTable* full_table(const char* name) {
  static pg::DeviceTable table;
  table = kTable;
  table.name = name;
  table.kernels = {};
  table.kernel_for = host_kernel;
  table.supports = nullptr;
  table.compile = compile;
  table.create_program = queue::create_program;
  table.begin_capture = queue::begin_capture;
  table.end_capture = queue::end_capture;
  table.launch = queue::launch;
  table.destroy_program = queue::destroy_program;
  return &table;
}

// Faulty tables, which tests select through the environment.
const pg::DeviceTable* faulty_table(const char* fault) {
  static pg::DeviceTable table;
  static const pg::KernelRow unknown[] = {{"no_such_op", contiguous}};
  table = kTable;
  table.name = fault;
  if (!std::strcmp(fault, "oldtable")) table.abi = pg::kDeviceAbi + 1;
  if (!std::strcmp(fault, "incomplete")) table.copy_out = nullptr;
  if (!std::strcmp(fault, "unknownop")) table.kernels = unknown;
  if (!std::strcmp(fault, "refuses")) return nullptr;
  if (!std::strcmp(fault, "full")) return full_table("full");
  if (!std::strcmp(fault, "plain")) {  // without the optional entries
    table.copy_between = nullptr;
    table.allocate_pinned = nullptr;
    table.release_pinned = nullptr;
    table.supports = nullptr;
  }
  return &table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pg::DeviceTable* perigee_device(uint64_t abi,
                                                                                        const pg::DeviceTable* host) {
  host_table = host;
  if (const char* fault = std::getenv("PERIGEE_TEST_DEVICE_FAULT")) return faulty_table(fault);
  if (abi != pg::kDeviceAbi) return nullptr;
  return std::getenv("PERIGEE_TEST_DEVICE") ? full_table("test_device") : &kTable;
}
