// What a device provides: a table of functions and kernel rows. All devices but the CPU are plugins, loaded on first
// use.
//
// Work is asynchronous. Kernels, copies, clears and releases are queued on a stream and run in the order of the stream;
// events order streams. The core queues all work of a device on one stream of the current runtime (`stream_of`). A
// device must copy what it needs of the arguments of a call: views, attributes and numbers are invalid once the call
// returned.
//
// Work may fail after its call returned. The device then drops the work that follows on the stream, and throws
// LateError from the next call that waits for the stream or for a later event. The work that failed and the work that
// was dropped leave unspecified contents in the memory that they write. This includes writes in place: a tensor that
// was to be updated may hold its old elements, new ones or a mix, until all of it is written again.
#pragma once
#include <memory>
#include <span>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/kernel.h"
#include "tensor/tile.h"

namespace pg {

// An error of work that was queued earlier. `place` is KernelArgs::place of that call, or null when unknown.
class LateError : public Error {
 public:
  LateError(const std::string& text, const char* place) : Error(text), place(place) {}
  const char* place;
};

// Bytes of a device's memory: of arrays, kept for reuse, and free and in all as the driver counts them.
struct DeviceMemory {
  size_t used = 0, cached = 0, free = 0, total = 0;
};

inline constexpr size_t kNoPiece = size_t(-1);

// When a program inside of another one runs: once, or by a flag, which is a bool in the memory of the device. kIf and
// kUnless look at it once, kWhile before each repetition.
enum class When : uint8_t { kOnce, kIf, kUnless, kWhile };

// The state of a loop whose steps the device counts. All pointers are into its memory.
struct LoopState {
  int64_t* steps;        // that have run
  int64_t* number;       // of the row of the next step, from 1; unchanged after the last step
  bool* more;            // whether there is a next step
  const int64_t* count;  // null, or the number of steps, if that is less than the limit
  const bool* flag;      // null, or false after the last step
  int64_t limit;         // of the steps
  bool reverse;          // whether rows are numbered from the last to the first
};

// Every function may throw pg::Error except release, release_pinned and destroy_…. Entries are required unless marked
// optional. A null optional entry means that the device lacks the feature; the core then works without it.
struct DeviceTable {
  uint64_t abi = 0;          // kDeviceAbi of tensor/device_abi.h
  const char* name = "";     // as in the file name of the plugin
  int (*count)() = nullptr;  // returns how many devices of this kind are usable

  // Streams and events.
  void* (*create_stream)(int index) = nullptr;
  void (*destroy_stream)(int index, void* stream) = nullptr;  // work that is queued still runs
  void (*synchronize)(int index, void* stream) = nullptr;     // the host waits for all work of the stream
  void* (*create_event)(int index) = nullptr;
  void (*destroy_event)(int index, void* event) = nullptr;
  void (*record)(int index, void* stream, void* event) = nullptr;  // the event completes after the work queued so far
  void (*follow)(int index, void* stream, void* event) = nullptr;  // later work of the stream waits for the event
  void (*await)(int index, void* event) = nullptr;                 // the host waits for the event

  // Memory. Work of the stream may use it from allocate on. release takes effect after the work queued before it.
  void* (*allocate)(int index, void* stream, size_t bytes) = nullptr;  // returns nullptr when memory has run out
  void (*release)(int index, void* stream, void* data, size_t bytes) = nullptr;  // `bytes` as passed to allocate
  // The caller keeps the host memory valid and unchanged until the stream has done the copy.
  void (*copy_in)(int index, void* stream, void* to, const void* from_host, size_t bytes) = nullptr;
  void (*copy_out)(int index, void* stream, void* to_host, const void* from, size_t bytes) = nullptr;
  void (*copy)(int index, void* stream, void* to, const void* from, size_t bytes) = nullptr;  // without overlap
  void (*clear)(int index, void* stream, void* to, size_t bytes) = nullptr;                   // sets all bytes to zero
  // Optional: copies from device `from_index` to device `index`, both of this kind, on a stream of `index`.
  void (*copy_between)(int index, void* stream, void* to, int from_index, const void* from, size_t bytes) = nullptr;
  // Optional, both or neither: pinned host memory, which copies read without the CPU.
  void* (*allocate_pinned)(size_t bytes) = nullptr;  // returns nullptr when memory has run out
  void (*release_pinned)(void* data, size_t bytes) = nullptr;

  // Kernels. Numbers among the inputs are 0-dim views of host memory (device cpu).
  std::span<const KernelRow> kernels;
  KernelRow (*kernel_for)(const OpDef& op) = nullptr;  // optional: for ops that `kernels` lacks; fn null: no kernel
  // Optional: whether the kernel of `op` accepts these input types (of tensors only). Null: it accepts all.
  bool (*supports)(const OpDef& op, std::span<const Type> inputs) = nullptr;
  // Whether ops without a kernel and without a decomposition run on the CPU through copies, instead of being errors.
  bool host_fallback = false;
  // Optional: compiles a fused body. Returns null for a body that it does not support, whose ops then run one by one.
  std::shared_ptr<const TileKernel> (*compile)(int index, const TileBody& body) = nullptr;
  bool strided_outputs = false;  // whether these kernels take outputs with any strides

  // Optional, all or none: a program is work that one call queues, in pieces that run one after the other. Kernels,
  // fused bodies, copies and clears queued on the stream between begin_capture and end_capture become a piece and do
  // not run: the next one, or in place of an earlier one, often the same work at other addresses. kNoPiece drops them.
  // If end_capture throws, the program is as before. Launches that are queued do not change. launch returns false, and
  // queues nothing, if the device cannot run a program with conditions. The device's kernel of `to` accepts contiguous
  // arrays of the host of up to kMostGiven bytes, too, and reads them before it returns.
  static constexpr int64_t kMostGiven = 16 << 10;
  void* (*create_program)(int index) = nullptr;
  void (*begin_capture)(int index, void* stream, void* program) = nullptr;
  void (*end_capture)(int index, void* stream, void* program, size_t piece) = nullptr;
  bool (*launch)(int index, void* stream, void* program) = nullptr;
  void (*destroy_program)(int index, void* program) = nullptr;  // launches that are queued still run

  // Optional: conditions in programs. If nest is null, the core uses none of the others. nest makes a program that is a
  // piece of another one, the next or in place of an earlier one, and belongs to it. Its own pieces are only added to.
  // `flag` is null for When::kOnce.
  void* (*nest)(int index, void* program, size_t piece, When when, const void* flag) = nullptr;
  // Queues the count of a loop: of 0 steps if `first`, else of one more. It sets what `loop` points to but count and
  // flag.
  void (*next_step)(int index, void* stream, const LoopState& loop, bool first) = nullptr;
  // Copies a row of `bytes` from or to the rows of an array. `number` is that of the row, from 1.
  void (*read_row)(int index, void* stream, void* to, const void* rows, size_t bytes, const int64_t* number) = nullptr;
  void (*write_row)(int index, void* stream, void* rows, const void* from, size_t bytes,
                    const int64_t* number) = nullptr;

  // Optional: facts for scripts.
  const char* (*title)(int index) = nullptr;  // the product's name, which lives as long as the process
  DeviceMemory (*memory)(int index) = nullptr;
  bool (*set_switch)(const char* name, bool on) = nullptr;  // returns false for a switch that the kind lacks
};

// The one symbol that a plugin exports: extern "C" const pg::DeviceTable* perigee_device(uint64_t abi, const
// pg::DeviceTable* host). It returns nullptr when it was built for another ABI, and throws pg::Error
// when the device cannot be used. `host` is the CPU's table.
using DeviceEntry = const DeviceTable* (*)(uint64_t abi, const DeviceTable* host);

const DeviceTable& device_table(Device device);

// Returns the row of the device's kernel for these inputs; fn is null when the device has none.
KernelRow kernel_row(const OpDef& op, Device device, std::span<const Value> inputs);
KernelRow kernel_row(const OpDef& op, Device device, std::span<const Type> inputs);

// Returns the stream that the core uses for all work of a device in the current runtime. stream_of: null for the CPU.
void* device_stream(Device device);
inline void* stream_of(Device device) { return device.is_cpu() ? nullptr : device_stream(device); }

// Copies. The host's bytes may change or be freed as soon as the call returns.
void upload(Device device, void* to, const void* from_host, size_t bytes);
void download(Device device, void* to_host, const void* from, size_t bytes);  // waits for the device
void copy_within(Device device, void* to, const void* from, size_t bytes);    // without overlap
void copy_across(Device to_device, void* to, Device from_device, const void* from, size_t bytes);
// Waits for all work of the device. Throws the error of work that failed.
void synchronize(Device device);

// Keeps the start of an error message (`file:line: op: `) for the life of the process, for KernelArgs::place.
const char* kept_place(const std::string& start);

// Whether the kernel is that of the CPU, called with copies of the operands.
bool runs_by_host(KernelFn fn);

// A flag of a device's kernel row beside KernelFlags: the kernel may wait for the stream, so that no program can
// contain it.
inline constexpr uint8_t kMayWait = 1 << 7;

// Whether the kernel of the op only queues work, so that a program may contain it. That of a random op depends on its
// key.
bool only_queues(const OpDef& op, Device device);

// The capture of work on a device. What is queued on its stream meanwhile does not run.
class Recording {
 public:
  Recording(Device device, void* stream, void* program) : device_(device), stream_(stream), program_(program) {}
  void* stream() const { return stream_; }
  // Makes what `queue` queues a program inside of the one that is captured, by a flag as in DeviceTable::nest. Requires
  // a recording that CapturedWork::capture made with `nests`.
  void nest(When when, const void* flag, FunctionRef<void()> queue);

 private:
  friend class CapturedWork;
  void begin();
  void end(size_t piece);

  const Device device_;
  void* const stream_;
  void* program_;
  size_t next_ = 0;  // piece
  bool open_ = false;
};

// Work on a device that is launched as one program.
class CapturedWork {
 public:
  explicit CapturedWork(Device device);
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  // `queue` must queue work on the stream of the recording. That becomes the next piece of the work, or replaces an
  // earlier one. If `queue` throws, the pieces stay. With `nests` the work may have conditions, and is incomplete after
  // a failure.
  void capture(size_t piece, FunctionRef<void(Recording&)> queue, bool nests = false);
  bool launch() const;  // as in DeviceTable

 private:
  const Device device_;
  void* stream_;  // of its own, so that work of other threads does not become part of the program
  void* program_;
};
bool captures(Device device);
bool writes_strided(Device device);  // whether fused bodies may write outputs with any strides
bool has_conditions(Device device);  // whether programs may have conditions

// Whether any element is NaN. Waits for the device.
bool has_nan(const View& contiguous);

// One number in the memory of a device.
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
