#include "tensor/device_abi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

#include "tensor/device_table.h"
#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/settings.h"

namespace pg {
namespace {

const DeviceTable& cpu_table() {
  static const DeviceTable table = [] {
    DeviceTable t;
    t.name = "cpu";
    t.count = [] { return 1; };
    t.copy = [](int, void*, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
    t.clear = [](int, void*, void* to, size_t bytes) { std::memset(to, 0, bytes); };
    t.compile = [](int, const TileBody& body) { return make_tile_kernel(body); };
    return t;
  }();
  return table;
}

struct Loaded {
  std::mutex lock;
  const DeviceTable* tables[kMaxDeviceKinds] = {&cpu_table()};
  std::atomic<int> count{1};  // written under the lock
};
Loaded& loaded() {
  static Loaded* instance = new Loaded;
  return *instance;
}

// Returns the folder of this library or program.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Returns the file of a plugin: beside this library or program, or where an install has it, lib/perigee.
std::string plugin_path(const std::string& name) {
  const char* given = setting("PERIGEE_DEVICE_PATH");
  const std::string folder = given ? given : own_folder(), file = fmt::format("/perigee_{}.so", name);
  if (!given)
    for (const char* place : {"", "/perigee", "/../perigee", "/../lib/perigee", "/../../perigee", "/../../../perigee"})
      if (::access((folder + place + file).c_str(), R_OK) == 0) return folder + place + file;
  return folder + file;
}

[[noreturn]] void fail_load(const std::string& name, const std::string& why) {
  throw Error(fmt::format("device '{}' cannot be loaded: {}", name, why));
}

bool complete(const DeviceTable& t) {
  return t.count && t.create_stream && t.destroy_stream && t.synchronize && t.create_event && t.destroy_event &&
         t.record && t.follow && t.await && t.allocate && t.release && t.copy_in && t.copy_out && t.copy && t.clear &&
         !t.allocate_pinned == !t.release_pinned && !t.begin_capture == !t.end_capture &&
         !t.begin_capture == !t.launch && !t.begin_capture == !t.destroy_program &&
         !t.begin_capture == !t.create_program;
}

// Closes the library unless `keep` was called. A plugin in use is never unloaded, because tensors and tables point into
// it.
class Library {
 public:
  Library(const std::string& name, const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) fail_load(name, dlerror());
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  DeviceEntry entry() const { return reinterpret_cast<DeviceEntry>(dlsym(handle_, "perigee_device")); }
  void keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

// One operand of a CPU kernel. If the operand is not in host memory, `view` shows a copy.
struct Staged {
  explicit Staged(const View& v) : original(v), view(v) {
    if (!v || host_reads(v.type->device)) return;
    type = {v.dtype(), {}, v.shape()};
    view.type = &type;
    bytes.resize(size_t(v.numel()) * size_t(size_of(v.dtype())));
    view.data = bytes.data();
  }
  Staged(const Staged&) = delete;  // `view` points to `type`
  Device device() const { return original ? original.type->device : Device{}; }

  Type type;
  View original, view;
  std::vector<char> bytes;
};

// Runs the CPU kernel of an op whose results have a shape that depends on values.
void run_dynamic_by_host(const KernelArgs& a, std::span<const View> inputs) {
  std::vector<View> device(a.out.size());
  std::deque<Staged> host;
  std::vector<Staged*> results(a.out.size());
  const auto allocate = [&](int i, const Dims& shape) {
    device[size_t(i)] = a.allocate(i, shape);
    results[size_t(i)] = &host.emplace_back(device[size_t(i)]);
    return results[size_t(i)]->view;
  };
  a.op.cpu_kernel.fn(KernelArgs{a.op, inputs, a.out, a.attrs, allocate});
  for (const Staged* s : results)
    if (s) upload(s->device(), s->original.data, s->view.data, s->bytes.size());
}

// Runs the CPU kernel of an op through host copies. For ops that move values between devices, show them or create them,
// and for those that a device lacks (DeviceTable::host_fallback).
void run_by_host(const KernelArgs& a) {
  std::vector<Staged> in(a.in.begin(), a.in.end());
  SmallVector<View, 2> inputs, outputs;
  for (Staged& s : in) {
    download(s.device(), s.view.data, s.original.data, s.bytes.size());
    inputs.push_back(s.view);
  }
  if (a.op.has(kDynamicShape)) return run_dynamic_by_host(a, inputs);
  std::vector<Staged> out(a.out.begin(), a.out.end());
  for (Staged& s : out) outputs.push_back(s.view);
  a.op.cpu_kernel.fn(KernelArgs{a.op, inputs, outputs, a.attrs, a.allocate});
  for (Staged& s : out) upload(s.device(), s.original.data, s.view.data, s.bytes.size());
}

// Returns the kernel rows of a device. Later rows replace earlier ones: defaults, then `kernel_for`, then `kernels`.
std::vector<KernelRow> rows_of(const DeviceTable& table) {
  std::vector<KernelRow> rows;
  for (const char* op : {"to", "empty", "full", "zeros", "ones"}) rows.push_back({op, run_by_host});
  for (const OpDef* op : registry().ops())
    if (op->has(kEffect)) rows.push_back({op->name, run_by_host});
  if (table.host_fallback)
    for (const OpDef* op : registry().ops())
      if (op->cpu_kernel.fn && !op->decompose) rows.push_back({op->name, run_by_host});
  if (table.kernel_for)
    for (const OpDef* op : registry().ops())
      if (const KernelRow row = table.kernel_for(*op); row.fn) rows.push_back(row);
  rows.insert(rows.end(), table.kernels.begin(), table.kernels.end());
  return rows;
}

// Calls the entry of a plugin. Its exceptions may not outlive the library.
const DeviceTable* enter(DeviceEntry entry, const std::string& name) {
  std::string why;
  try {
    return entry(kDeviceAbi, &cpu_table());
  } catch (const std::exception& error) {
    why = error.what();
  }
  fail_load(name, why);
}

// Loads the plugin into the free slot `kind` of the table.
void load(Loaded& all, const std::string& name, int kind) {
  const std::string path = plugin_path(name);
  Library library(name, path);
  const DeviceEntry entry = library.entry();
  if (!entry) fail_load(name, path + " has no entry perigee_device");
  const DeviceTable* const table = enter(entry, name);
  if (!table || table->abi != kDeviceAbi) fail_load(name, path + " was built for another version of perigee");
  if (name != table->name) fail_load(name, fmt::format("{} provides the device '{}'", path, table->name));
  if (!complete(*table)) fail_load(name, path + " lacks a function of the device table");
  try {
    registry().add_kernels(kind, rows_of(*table));
  } catch (const Error& error) {
    fail_load(name, fmt::format("{}: {}", path, error.what()));
  }
  all.tables[kind] = table;
  library.keep();
}

int kind_of(const std::string& name) {
  Loaded& all = loaded();
  std::lock_guard hold(all.lock);
  const int count = all.count;
  for (int i = 0; i < count; ++i)
    if (name == all.tables[i]->name) return i;
  if (count == kMaxDeviceKinds) throw Error("too many kinds of devices");
  load(all, name, count);
  all.count = count + 1;
  return count;
}

}  // namespace

const DeviceTable& device_table(Device device) { return *loaded().tables[device.kind]; }

bool runs_by_host(KernelFn fn) { return fn == run_by_host; }

bool only_queues(const OpDef& op, Device device) {
  const KernelRow row = registry().kernel(op, device);
  return row.fn != run_by_host && !(row.flags & kMayWait) && !(op.traits & (kEffect | kDynamicShape));
}

bool fuses(Device device) { return device_table(device).compile != nullptr; }

bool writes_strided(Device device) { return fuses(device) && device_table(device).strided_outputs; }

KernelRow kernel_row(const OpDef& op, Device device, std::span<const Type> inputs) {
  const KernelRow row = registry().kernel(op, device);
  const auto supports = device_table(device).supports;
  return !row.fn || row.fn == run_by_host || !supports || supports(op, inputs) ? row : KernelRow{op.name, nullptr};
}

KernelRow kernel_row(const OpDef& op, Device device, std::span<const Value> inputs) {
  if (device.is_cpu() || !device_table(device).supports) return registry().kernel(op, device);
  SmallVector<Type, 4> types;
  for (const Value& v : inputs)
    if (v.is_array()) types.push_back(v.type());
  return kernel_row(op, device, std::span<const Type>(types.begin(), types.end()));
}

Device device_from_name(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string kind_name(name.substr(0, colon));
  int index = 0;
  if (kind_name.empty() || kind_name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
    bad_argument("device", "name", "\"cpu\", \"cuda\" or \"cuda:1\"", '"' + std::string(name) + '"');
  if (colon != std::string_view::npos) {
    const std::string digits(name.substr(colon + 1));
    if (digits.empty() || digits.size() > 2 || digits.find_first_not_of("0123456789") != std::string::npos)
      bad_argument("device", "name", "a device number after ':'", '"' + std::string(name) + '"');
    index = std::stoi(digits);
  }
  const int kind = kind_of(kind_name);
  const int count = loaded().tables[kind]->count();
  if (index >= count)
    bad_argument("device", "name", count > 0 ? fmt::format("a number below {}", count) : "a device that is present",
                 '"' + std::string(name) + '"');
  return Device{uint8_t(kind), uint8_t(index)};
}

std::string name_of(Device device) {
  const std::string kind = device_table(device).name;
  return device.index == 0 ? kind : fmt::format("{}:{}", kind, device.index);
}

std::vector<std::string> device_names() {
  Loaded& all = loaded();
  std::vector<std::string> names;
  for (int k = 0; k < all.count; ++k)
    for (int i = 0; i < all.tables[k]->count(); ++i) names.push_back(name_of(Device{uint8_t(k), uint8_t(i)}));
  return names;
}

}  // namespace pg
