// Devices by name. tensor/device_table.h declares the functions that a device provides.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pg {

// A device as stored in every tensor type. `kind` is an index into the table of loaded devices (0: cpu).
struct Device {
  uint8_t kind = 0;
  uint8_t index = 0;
  bool is_cpu() const { return kind == 0; }
  bool operator==(const Device&) const = default;
};

inline constexpr int kMaxDeviceKinds = 16;
inline constexpr int kMaxDeviceIndex = 100;

// Whether the host can read the device's memory through its pointers, without copies or waiting.
inline bool host_reads(Device device) { return device.kind == 0; }
// Whether the device compiles fused bodies.
bool fuses(Device device);

// Parses "cpu", "cuda" or "cuda:1"; indices count from 0 as in the vendors' tools. The first use loads the plugin
// `perigee_NAME.so` from the folder of this library, from lib/perigee of the install, or from $PERIGEE_DEVICE_PATH.
// Throws Error with the loader's message when it cannot be loaded.
Device device_from_name(std::string_view name);
std::string name_of(Device device);

// Returns the instruction set of the CPU kernels: "avx512", "avx2", "sse4" or "sse2". The environment variable
// PERIGEE_MAX_ISA can only lower it.
const char* cpu_instruction_set();

// Returns the names of the loaded devices, "cpu" first.
std::vector<std::string> device_names();

}  // namespace pg
