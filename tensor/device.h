// Devices by name, and what the core asks of one. The functions that a device offers: tensor/device_table.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pg {

// A device as stored in every tensor type: kind is an index into the table of loaded devices (0 = cpu).
struct Device {
  uint8_t kind = 0;
  uint8_t index = 0;
  bool is_cpu() const { return kind == 0; }
  bool operator==(const Device&) const = default;
};

inline constexpr int kMaxDeviceKinds = 16;
inline constexpr int kMaxDeviceIndex = 100;

// Questions of passes, planner and execution.
// Whether the host may follow pointers to the device's memory, at once and without waiting.
inline bool host_reads(Device device) { return device.kind == 0; }
// Whether the device compiles fused bodies.
bool fuses(Device device);

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
