// Devices. A device is a table of functions and kernel rows; all but the CPU are loaded late from a
// shared object through one C entry.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pg {

struct KernelRow;
struct OpDef;

// A device as stored in every tensor type: kind is an index into the table of loaded devices (0 = cpu).
struct Device {
  uint8_t kind = 0;
  uint8_t index = 0;
  bool is_cpu() const { return kind == 0; }
  bool operator==(const Device&) const = default;
};

inline constexpr uint32_t kDeviceAbi = 3;
inline constexpr int kMaxDeviceKinds = 16;

// What a device offers. Every function may throw pg::Error; release must not.
struct DeviceTable {
  uint32_t abi = kDeviceAbi;
  const char* name = "";                                           // as in the name of the plugin's file
  int (*count)() = nullptr;                                        // how many devices of this kind are usable
  void* (*allocate)(int index, size_t bytes) = nullptr;            // nullptr when there is no memory
  void (*release)(int index, void* data, size_t bytes) = nullptr;  // with the bytes asked for
  void (*copy_in)(int index, void* to, const void* from_host, size_t bytes) = nullptr;
  void (*copy_out)(int index, void* to_host, const void* from, size_t bytes) = nullptr;
  void (*copy)(int index, void* to, const void* from, size_t bytes) = nullptr;  // within the device; no overlap
  void (*clear)(int index, void* to, size_t bytes) = nullptr;                   // to zero bytes
  void (*synchronize)(int index) = nullptr;
  std::span<const KernelRow> kernels;  // numbers among the inputs come as 0-dim views of host memory (device cpu)
  KernelRow (*kernel_for)(const OpDef& op) =
      nullptr;  // may be null: asked for each op that `kernels` lacks; fn null: none
};

// The one symbol a plugin exports: extern "C" const pg::DeviceTable* perigee_device(uint32_t abi);
// it answers nullptr when it does not speak this ABI.
using DeviceEntry = const DeviceTable* (*)(uint32_t abi);

const DeviceTable& device_table(Device device);

// One number in memory of a device.
template <class T>
class RemoteNumber {
 public:
  RemoteNumber(Device device, void* place) : table_(&device_table(device)), index_(device.index), place_(place) {}
  T get() const {
    T value;
    table_->copy_out(index_, &value, place_, sizeof value);
    return value;
  }
  void set(T value) { table_->copy_in(index_, place_, &value, sizeof value); }

 private:
  const DeviceTable* table_;
  int index_;
  void* place_;
};

// Parses "cpu", "cuda", "cuda:1" (numbers count from 0 as the vendors do), loading the plugin
// `perigee_NAME.so` (beside this library, or in $PERIGEE_DEVICE_PATH) on first use. Throws Error with the
// loader's text when it cannot be had.
Device device_from_name(std::string_view name);
std::string name_of(Device device);

// "avx512", "avx2", "sse4" or "sse2": what the CPU's kernels use. The environment variable PERIGEE_MAX_ISA sets a lower
// limit than the CPU's.
const char* cpu_instruction_set();

// Names of the devices that are loaded, "cpu" first.
std::vector<std::string> device_names();

}  // namespace pg
