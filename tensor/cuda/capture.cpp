#include "tensor/cuda/capture.h"

#include <algorithm>
#include <utility>

#include "tensor/cuda/condition.h"
#include "tensor/cuda/memory.h"
#include "tensor/error.h"

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

struct Body;

struct Piece {
  Graph work;
  CUgraphNode node = nullptr;                     // in the whole graph; null where there is no work
  std::vector<std::shared_ptr<const void>> kept;  // what its kernels need
  std::unique_ptr<Body> body;                     // instead of work
};

struct Program;

// A program, or one inside of it.
struct Body {
  Program& program;
  When when = When::kOnce;
  const void* flag = nullptr;
  std::vector<Piece> pieces = {};

  void add_to(Gpu& gpu, Chain& chain);
};

struct Program {
  explicit Program(Gpu& on) : gpu(on), scratch(on) {}
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
    Chain chain{handle};
    body.add_to(gpu, chain);
    driver().cuGraphInstantiate(&made, handle, 0);
  }
  void drop() {
    if (made) driver().cuGraphExecDestroy.status(std::exchange(made, nullptr));
  }
  void set(Body& in, size_t at, Piece piece) {
    if (at == in.pieces.size()) in.pieces.emplace_back();
    Piece& old = in.pieces[at];
    if (made && !replaces(in, old, piece)) drop();
    piece.node = old.node;
    if ((old.body || !old.kept.empty()) && last) driver().cuStreamSynchronize.status(last);
    old = std::move(piece);
  }
  // Puts a piece in place of another one in the executable graph. Returns false if that cannot be done.
  bool replaces(const Body& in, const Piece& old, const Piece& piece) const {
    if (&in != &body || old.body || piece.body) return false;
    if (!old.node) return old.work.get() && piece.work.empty();
    return driver().cuGraphExecChildGraphNodeSetParams.status(made, old.node, piece.work.get()) == CUDA_SUCCESS;
  }

  Gpu& gpu;
  ScratchPool scratch;
  Body body{*this};
  bool conditional = false;
  Graph whole;
  CUgraphExec made = nullptr;
  std::shared_ptr<FaultSlot> fault;
  CUstream last = nullptr;  // the stream of the last launch
};

void Body::add_to(Gpu& gpu, Chain& chain) {
  for (Piece& p : pieces) {
    p.node = nullptr;
    if (!p.body) {
      if (p.work.empty()) continue;
      driver().cuGraphAddChildGraphNode(&p.node, chain.graph, &chain.last, chain.last ? 1 : 0, p.work.get());
      chain.last = p.node;
    } else if (p.body->when == When::kOnce) {
      p.body->add_to(gpu, chain);
    } else {
      add_condition(gpu, chain, p.body->when, p.body->flag, [&](Chain& inner) { p.body->add_to(gpu, inner); });
    }
  }
}

Body& body_at(void* program) { return *static_cast<Body*>(program); }

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

void* create_program(int index) { return &(new Program(gpu(index)))->body; }

void begin_capture(int index, void* stream, void* program) {
  gpu(index);
  Stream& s = stream_at(stream);
  driver().cuStreamBeginCapture(s.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
  s.capture.reset(new Capture{body_at(program).program.scratch, {}});
}

void end_capture(int index, void* stream, void* program, size_t piece) {
  gpu(index);
  Stream& s = stream_at(stream);
  Piece made;
  made.kept = std::move(s.capture->kept);
  s.capture = nullptr;
  CUgraph work = nullptr;
  driver().cuStreamEndCapture(s.handle, &work);
  made.work = Graph(work);
  if (piece == kNoPiece) return;
  Body& body = body_at(program);
  body.program.fault = s.fault;
  body.program.set(body, piece, std::move(made));
}

void* nest_program(int index, void* program, size_t piece, When when, const void* flag) {
  gpu(index);
  Body& outer = body_at(program);
  outer.program.conditional |= when != When::kOnce;
  Piece made;
  made.body.reset(new Body{outer.program, when, flag});
  Body* const body = made.body.get();
  outer.program.set(outer, piece, std::move(made));
  return body;
}

bool launch_program(int index, void* stream, void* program) {
  gpu(index);
  Stream& s = stream_at(stream);
  Program& p = body_at(program).program;
  try {
    p.build();
  } catch (const Error&) {
    if (!p.conditional) throw;
    return false;
  }
  p.last = s.handle;
  if (p.fault) {
    const std::lock_guard hold(s.lock);
    if (std::find(s.watched.begin(), s.watched.end(), p.fault) == s.watched.end()) s.watched.push_back(p.fault);
  }
  driver().cuGraphLaunch(p.made, s.handle);
  return true;
}

void destroy_program(int index, void* program) {
  gpu(index);
  delete &body_at(program).program;
}

}  // namespace pg::cuda
