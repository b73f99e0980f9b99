#include "tensor/device.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tensor/error.h"
#include "tensor/op.h"

namespace pg {
namespace {

const DeviceTable& cpu_table() {
  static const DeviceTable table = [] {
    DeviceTable t;
    t.name = "cpu";
    t.count = [] { return 1; };
    t.copy_in = [](int, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
    t.copy_out = [](int, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
    t.synchronize = [](int) {};
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

// The folder of this library or program.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

[[noreturn]] void fail_load(const std::string& name, const std::string& why) {
  throw Error(fmt::format("device '{}' cannot be loaded: {}", name, why));
}

bool complete(const DeviceTable& t) {
  return t.count && t.allocate && t.release && t.copy_in && t.copy_out && t.synchronize;
}

// A plugin that was of use is never unloaded: tensors and tables point into it.
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

// Loads the plugin into the free slot `kind` of the table.
void load(Loaded& all, const std::string& name, int kind) {
  const char* folder = std::getenv("PERIGEE_DEVICE_PATH");
  const std::string path = fmt::format("{}/perigee_{}.so", folder ? folder : own_folder(), name);
  Library library(name, path);
  const DeviceEntry entry = library.entry();
  if (!entry) fail_load(name, path + " has no entry perigee_device");
  const DeviceTable* table = entry(kDeviceAbi);
  if (!table || table->abi != kDeviceAbi) fail_load(name, path + " was built for another version of perigee");
  if (name != table->name) fail_load(name, fmt::format("{} holds the device '{}'", path, table->name));
  if (!complete(*table)) fail_load(name, path + " lacks a function of the device table");
  try {
    registry().add_kernels(kind, table->kernels);
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
  if (index >= count) bad_argument("device", "name", count > 0 ? fmt::format("a number below {}", count) : "a device that is present", '"' + std::string(name) + '"');
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
