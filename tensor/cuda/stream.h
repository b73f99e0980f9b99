// Streams and events of the device table, and the errors of kernels that look at values.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tensor/cuda/gpu.h"
#include "tensor/kernel.h"
#include "tensor/kernels/fault.h"

namespace pg::cuda {

// A Fault in host memory that kernels can write.
class FaultSlot {
 public:
  FaultSlot();
  ~FaultSlot();
  FaultSlot(const FaultSlot&) = delete;
  Fault* get() const { return fault_; }

 private:
  Fault* fault_ = nullptr;
};

struct Capture;

struct Stream {
  explicit Stream(Gpu& on);
  ~Stream();
  Stream(const Stream&) = delete;

  Gpu& gpu;
  CUstream handle = nullptr;
  std::shared_ptr<FaultSlot> fault;
  std::map<const void*, std::shared_ptr<void>> kept;  // see kept_by
  std::unique_ptr<Capture> capture;                   // of the program that is being captured
  std::mutex lock;                                    // of `watched`
  std::vector<std::shared_ptr<FaultSlot>> watched;    // of the programs that were launched since the last wait

  void wait();                  // throws LateError for what a kernel refused
  void raise_fault(bool done);  // the same without waiting; `done`: all work of the stream is
};

inline Stream& stream_at(void* stream) { return *static_cast<Stream*>(stream); }

// What a library keeps for a stream: T(stream), made at its first use. Work on a stream is queued by one thread at a
// time.
template <class T>
T& kept_by(Stream& stream) {
  static const char key = 0;
  std::shared_ptr<void>& kept = stream.kept[&key];
  if (!kept) kept = std::make_shared<T>(stream);
  return *static_cast<T*>(kept.get());
}

// What a kernel refuses: `OP: bad argument 'NAME' (expected …, got …)`.
struct Refusal {
  const OpDef* op = nullptr;
  size_t input = 0;             // flattened
  const char* place = nullptr;  // KernelArgs::place
  enum class Kind : uint8_t { kIndex, kDivisor, kExponent, kAssert, kLabel, kText } kind = Kind::kIndex;
  bool negative = false;         // kIndex: values may count from the end
  int64_t size = 0, base = 1;    // kIndex
  int64_t ignored = 0;           // kLabel: a label that is accepted besides the classes
  std::string argument, detail;  // the name of the input; of kAssert, the message; of kIndex, what follows the position
  std::string name;              // the op to name, if it is another one
  Dims shape;                    // of the input
  // kText: with {value}, {number} (the value as the bits of a double) and {at} (the position from 1) replaced.
  std::string expected, got;
};
// A refusal of kind kText.
Refusal refusal(const KernelArgs& a, std::string argument, std::string expected, std::string got);
// Returns the number of the report, the same for an equal refusal.
int32_t report_number(const Refusal& refusal);

void* create_stream(int index);
void destroy_stream(int index, void* stream);
void synchronize(int index, void* stream);
void* create_event(int index);
void destroy_event(int index, void* event);
void record(int index, void* stream, void* event);
void follow(int index, void* stream, void* event);
void await(int index, void* event);

}  // namespace pg::cuda
