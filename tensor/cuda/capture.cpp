#include "tensor/cuda/capture.h"

#include <algorithm>
#include <utility>

#include "tensor/cuda/memory.h"
#include "tensor/device_table.h"

namespace pg::cuda {
namespace {

class Graph {
 public:
  Graph() = default;
  explicit Graph(CUgraph handle) : handle_(handle) {}
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Graph() {
    if (handle_) driver().cuGraphDestroy.status(handle_);
  }
  CUgraph get() const { return handle_; }
  bool empty() const {
    size_t nodes = 0;
    driver().cuGraphGetNodes(handle_, nullptr, &nodes);
    return nodes == 0;
  }

 private:
  CUgraph handle_ = nullptr;
};

struct Piece {
  Graph work;
  CUgraphNode node = nullptr;                     // in the whole graph; null where there is no work
  std::vector<std::shared_ptr<const void>> kept;  // what its kernels need
};

struct Program {
  explicit Program(Gpu& on) : scratch(on) {}
  ~Program() {
    drop();
    // Its memory goes to other streams.
    if (last && !scratch.empty()) driver().cuStreamSynchronize.status(last);
  }
  Program(const Program&) = delete;

  // Makes the executable graph, if there is none.
  void build() {
    if (made) return;
    CUgraph handle = nullptr;
    driver().cuGraphCreate(&handle, 0);
    whole = Graph(handle);
    CUgraphNode before = nullptr;
    for (Piece& p : pieces) {
      p.node = nullptr;
      if (p.work.empty()) continue;
      driver().cuGraphAddChildGraphNode(&p.node, handle, &before, before ? 1 : 0, p.work.get());
      before = p.node;
    }
    driver().cuGraphInstantiate(&made, handle, 0);
  }
  void drop() {
    if (made) driver().cuGraphExecDestroy.status(std::exchange(made, nullptr));
  }
  void set(size_t at, Graph work, std::vector<std::shared_ptr<const void>> kept) {
    if (at == pieces.size()) {
      pieces.emplace_back();
      drop();
    } else if (made) {
      const CUgraphNode node = pieces[at].node;
      const bool same = !node && work.empty();
      if (!same && (!node || driver().cuGraphExecChildGraphNodeSetParams.status(made, node, work.get()))) drop();
    }
    pieces[at].work = std::move(work);
    if (!pieces[at].kept.empty() && last) driver().cuStreamSynchronize.status(last);
    pieces[at].kept = std::move(kept);
  }

  ScratchPool scratch;
  std::vector<Piece> pieces;
  Graph whole;
  CUgraphExec made = nullptr;
  std::shared_ptr<FaultSlot> fault;
  CUstream last = nullptr;  // the stream of the last launch
};

Program& program_at(void* program) { return *static_cast<Program*>(program); }

}  // namespace

ScratchPool::~ScratchPool() {
  for (const auto& [data, bytes] : all_) gpu_.memory->release(nullptr, data);
}

void* ScratchPool::take(size_t bytes) {
  const auto found = idle_.lower_bound(bytes);
  if (found != idle_.end()) {
    void* const data = found->second;
    idle_.erase(found);
    return data;
  }
  void* const data = gpu_.memory->allocate(nullptr, bytes);
  if (data) all_[data] = bytes;
  return data;
}

void ScratchPool::give(void* data) { idle_.emplace(all_.at(data), data); }

void* create_program(int index) { return new Program(gpu(index)); }

void begin_capture(int index, void* stream, void* program) {
  gpu(index);
  Stream& s = stream_at(stream);
  driver().cuStreamBeginCapture(s.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
  s.capture.reset(new Capture{program_at(program).scratch, {}});
}

void end_capture(int index, void* stream, void* program, size_t piece) {
  gpu(index);
  Stream& s = stream_at(stream);
  const std::vector<std::shared_ptr<const void>> kept = std::move(s.capture->kept);
  s.capture = nullptr;
  CUgraph work = nullptr;
  driver().cuStreamEndCapture(s.handle, &work);
  Graph owned(work);
  if (piece == kNoPiece) return;
  program_at(program).fault = s.fault;
  program_at(program).set(piece, std::move(owned), kept);
}

void launch_program(int index, void* stream, void* program) {
  gpu(index);
  Stream& s = stream_at(stream);
  Program& p = program_at(program);
  p.build();
  p.last = s.handle;
  if (p.fault) {
    const std::lock_guard hold(s.lock);
    if (std::find(s.watched.begin(), s.watched.end(), p.fault) == s.watched.end()) s.watched.push_back(p.fault);
  }
  driver().cuGraphLaunch(p.made, s.handle);
}

void destroy_program(int index, void* program) {
  gpu(index);
  delete &program_at(program);
}

}  // namespace pg::cuda
