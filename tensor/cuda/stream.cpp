#include "tensor/cuda/stream.h"

#include "tensor/cuda/capture.h"
#include "tensor/cuda/memory.h"
#include "tensor/device_table.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

struct Event {
  CUevent handle = nullptr;
  Stream* stream = nullptr;  // of the last recording
};

}  // namespace

FaultSlot::FaultSlot() {
  void* memory = nullptr;
  driver().cuMemHostAlloc(&memory, sizeof(Fault), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  fault_ = new (memory) Fault;
}
FaultSlot::~FaultSlot() { driver().cuMemFreeHost.status(fault_); }

Stream::Stream(Gpu& on) : gpu(on), fault(std::make_shared<FaultSlot>()) {
  driver().cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING);
}

Stream::~Stream() {
  driver().cuStreamSynchronize.status(handle);  // kernels that run may still report
  kept.clear();
  gpu.memory->forget(this);
  driver().cuStreamDestroy.status(handle);
}

void Stream::wait() {
  driver().cuStreamSynchronize(handle);
  raise_fault(true);
}

void* create_stream(int index) { return new Stream(gpu(index)); }

void destroy_stream(int index, void* stream) {
  gpu(index);
  delete static_cast<Stream*>(stream);
}

void synchronize(int index, void* stream) {
  gpu(index);
  stream_at(stream).wait();
}

void* create_event(int index) {
  gpu(index);
  auto event = std::make_unique<Event>();
  driver().cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING);
  return event.release();
}

void destroy_event(int, void* event) {
  const std::unique_ptr<Event> owned(static_cast<Event*>(event));
  driver().cuEventDestroy.status(owned->handle);
}

void record(int index, void* stream, void* event) {
  gpu(index);
  auto* e = static_cast<Event*>(event);
  e->stream = &stream_at(stream);
  driver().cuEventRecord(e->handle, e->stream->handle);
}

void follow(int index, void* stream, void* event) {
  gpu(index);
  driver().cuStreamWaitEvent(stream_at(stream).handle, static_cast<Event*>(event)->handle, 0);
}

void await(int index, void* event) {
  gpu(index);
  auto* e = static_cast<Event*>(event);
  driver().cuEventSynchronize(e->handle);
  if (e->stream) e->stream->raise_fault(false);
}

}  // namespace pg::cuda
