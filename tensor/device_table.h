// What a device offers: a table of functions and kernel rows. All devices but the CPU are loaded late from a shared
// object through one C entry.
//
// Work is asynchronous. Kernels, copies, clears and releases are queued on a stream and run in the order of the stream;
// an event orders streams. The core queues all work of a device on one stream (`stream_of`). A device keeps what it
// needs of the arguments of a call: views, attributes and numbers are gone when the call returns. Work that fails after
// its call returned is an error that arrives late: the device drops the work of that stream that follows, and throws
// LateError from the next call that waits for the stream or for an event behind it. Memory written in between holds
// anything.
#pragma once
#include <memory>
#include <span>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/kernel.h"
#include "tensor/tile.h"

namespace pg {

// An error of work that was queued before. `place`: KernelArgs::place of the call, null when unknown.
class LateError : public Error {
 public:
  LateError(const std::string& text, const char* place) : Error(text), place(place) {}
  const char* place;
};

// Every function may throw pg::Error; release, release_pinned, destroy_… must not. Entries are required unless marked
// optional: null there means that the device cannot do it, and the core does without.
struct DeviceTable {
  uint64_t abi = 0;          // kDeviceAbi of tensor/device_abi.h
  const char* name = "";     // as in the name of the plugin's file
  int (*count)() = nullptr;  // how many devices of this kind are usable

  // Streams and events.
  void* (*create_stream)(int index) = nullptr;
  void (*synchronize)(int index, void* stream) = nullptr;  // the host waits for all work of the stream
  void* (*create_event)(int index) = nullptr;
  void (*destroy_event)(int index, void* event) = nullptr;
  void (*record)(int index, void* stream, void* event) = nullptr;  // the event happens after the work so far
  void (*follow)(int index, void* stream, void* event) = nullptr;  // later work of the stream comes after the event
  void (*await)(int index, void* event) = nullptr;                 // the host waits

  // Memory. It may be used by work of the stream from allocate on; release comes after the work queued before it.
  void* (*allocate)(int index, void* stream, size_t bytes) = nullptr;            // nullptr when there is no memory
  void (*release)(int index, void* stream, void* data, size_t bytes) = nullptr;  // with the bytes asked for
  // Host memory stays as it is until the stream has come by.
  void (*copy_in)(int index, void* stream, void* to, const void* from_host, size_t bytes) = nullptr;
  void (*copy_out)(int index, void* stream, void* to_host, const void* from, size_t bytes) = nullptr;
  void (*copy)(int index, void* stream, void* to, const void* from, size_t bytes) = nullptr;  // no overlap
  void (*clear)(int index, void* stream, void* to, size_t bytes) = nullptr;                   // to zero bytes
  // Optional: from device `from_index` of this kind to device `index`, on a stream of the latter.
  void (*copy_between)(int index, void* stream, void* to, int from_index, const void* from, size_t bytes) = nullptr;
  // Optional, both or none: host memory that copies read without the CPU's help.
  void* (*allocate_pinned)(size_t bytes) = nullptr;  // nullptr when there is none
  void (*release_pinned)(void* data, size_t bytes) = nullptr;

  // Kernels. Numbers among the inputs come as 0-dim views of host memory (device cpu).
  std::span<const KernelRow> kernels;
  KernelRow (*kernel_for)(const OpDef& op) = nullptr;  // optional: for each op that `kernels` lacks; fn null: none
  // Optional: whether the op's kernel computes these inputs (those that are tensors); null: it computes all.
  bool (*supports)(const OpDef& op, std::span<const Type> inputs) = nullptr;
  // Optional: fused bodies. Null for a body that the device leaves: its ops then run one by one.
  std::shared_ptr<const TileKernel> (*compile)(int index, const TileBody& body) = nullptr;

  // Optional, all or none: work as a program that is queued with one call. Kernels and fused bodies queued on a stream
  // between begin and end belong to the program and are not done. It reads and writes the same addresses at each
  // launch.
  void (*begin_capture)(int index, void* stream) = nullptr;
  void* (*end_capture)(int index, void* stream) = nullptr;
  void (*launch)(int index, void* stream, void* program) = nullptr;
  void (*destroy_program)(int index, void* program) = nullptr;  // what was launched is done all the same
};

// The one symbol a plugin exports: extern "C" const pg::DeviceTable* perigee_device(uint64_t abi, const
// pg::DeviceTable* host); it returns nullptr when it was built for another ABI. `host` is the CPU's table.
using DeviceEntry = const DeviceTable* (*)(uint64_t abi, const DeviceTable* host);

const DeviceTable& device_table(Device device);

// The row of a device's kernel for such inputs; fn is null when the device has none.
KernelRow kernel_row(const OpDef& op, Device device, std::span<const Value> inputs);
KernelRow kernel_row(const OpDef& op, Device device, std::span<const Type> inputs);

// The stream that the core queues the work of a device on; null for the CPU.
void* device_stream(Device device);
inline void* stream_of(Device device) { return device.is_cpu() ? nullptr : device_stream(device); }

// Copies. The host's bytes may change or go when a call returns.
void upload(Device device, void* to, const void* from_host, size_t bytes);
void download(Device device, void* to_host, const void* from, size_t bytes);  // waits
void copy_within(Device device, void* to, const void* from, size_t bytes);    // no overlap
void copy_across(Device to_device, void* to, Device from_device, const void* from, size_t bytes);
void clear_bytes(Device device, void* to, size_t bytes);
// Waits for all work of the device; throws what failed.
void synchronize(Device device);

// The start of an error's text, as in `file:line: op: `, as KernelArgs::place; kept for the life of the process.
const char* kept_place(const std::string& start);

// Whether kernels of this row are queued and nothing else, so that a program may hold them.
bool only_queues(const OpDef& op, KernelFn fn);

// Work on a device that is launched as one program.
class CapturedWork {
 public:
  // `queue` queues the work on the stream that it gets; when it throws there is no program.
  CapturedWork(Device device, FunctionRef<void(void* stream)> queue);
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  void launch() const;

 private:
  Device device_;
  void* program_ = nullptr;
};
bool captures(Device device);

// Whether an element is a NaN; waits for the device.
bool has_nan(const View& contiguous);

// One number in memory of a device.
template <class T>
class RemoteNumber {
 public:
  RemoteNumber(Device device, void* place) : device_(device), place_(place) {}
  T get() const {
    T value;
    download(device_, &value, place_, sizeof value);
    return value;
  }
  void set(T value) { upload(device_, place_, &value, sizeof value); }

 private:
  Device device_;
  void* place_;
};

}  // namespace pg
