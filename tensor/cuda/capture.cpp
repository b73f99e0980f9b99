#include "tensor/cuda/capture.h"

#include <algorithm>

#include "tensor/cuda/memory.h"

namespace pg::cuda {
namespace {

struct Program {
  Gpu& gpu;
  CUgraphExec graph = nullptr;
  std::shared_ptr<FaultSlot> fault;
  std::vector<void*> scratch;
  std::vector<std::shared_ptr<const void>> kept;
  CUstream last = nullptr;  // the stream of the last launch

  explicit Program(Gpu& on) : gpu(on) {}
  ~Program() {
    if (graph) driver().cuGraphExecDestroy.status(graph);
    free_scratch();
  }
  Program(const Program&) = delete;
  void free_scratch() {
    if (!scratch.empty() && last) driver().cuStreamSynchronize.status(last);
    for (void* data : scratch) gpu.memory->release(nullptr, data);
    scratch.clear();
  }
};

class Graph {
 public:
  explicit Graph(CUstream stream) { driver().cuStreamEndCapture(stream, &handle_); }
  ~Graph() { driver().cuGraphDestroy.status(handle_); }
  Graph(const Graph&) = delete;
  CUgraph get() const { return handle_; }

 private:
  CUgraph handle_ = nullptr;
};

}  // namespace

void begin_capture(int index, void* stream) {
  gpu(index);
  Stream& s = stream_at(stream);
  driver().cuStreamBeginCapture(s.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
  s.capture = std::make_unique<Capture>();
}

void* end_capture(int index, void* stream, void* old) {
  Stream& s = stream_at(stream);
  auto program = std::make_unique<Program>(gpu(index));
  program->scratch = std::move(s.capture->scratch);
  program->kept = std::move(s.capture->kept);
  program->fault = s.fault;
  s.capture = nullptr;
  const Graph graph(s.handle);
  auto* before = static_cast<Program*>(old);
  CUgraphExecUpdateResultInfo info = {};
  if (before && driver().cuGraphExecUpdate.status(before->graph, graph.get(), &info) == CUDA_SUCCESS) {
    before->free_scratch();
    before->scratch.swap(program->scratch);
    before->kept.swap(program->kept);
    before->fault = program->fault;
    return before;
  }
  driver().cuGraphInstantiate(&program->graph, graph.get(), 0);
  delete before;
  return program.release();
}

void launch_program(int index, void* stream, void* program) {
  gpu(index);
  Stream& s = stream_at(stream);
  auto* p = static_cast<Program*>(program);
  p->last = s.handle;
  {
    const std::lock_guard hold(s.lock);
    if (std::find(s.watched.begin(), s.watched.end(), p->fault) == s.watched.end()) s.watched.push_back(p->fault);
  }
  driver().cuGraphLaunch(p->graph, s.handle);
}

void destroy_program(int index, void* program) {
  gpu(index);
  delete static_cast<Program*>(program);
}

}  // namespace pg::cuda
