// Programs: work that is captured into a CUDA graph. Each piece is a graph of its own, a node of the whole graph, so
// that it can be replaced in the executable graph whatever kernels of whichever library it has. A program inside of
// another one is the body of a conditional node. These are not replaced, and no node's graph may contain them: what is
// to run once is a part of the graph around it.
#pragma once
#include <map>
#include <vector>

#include "tensor/cuda/stream.h"
#include "tensor/device_table.h"

namespace pg::cuda {

// The scratch memory of a program. Its kernels run one after the other, so that memory that one has given back serves
// later ones.
class ScratchPool {
 public:
  explicit ScratchPool(Gpu& gpu) : gpu_(gpu) {}
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  void* take(size_t bytes);  // null: memory has run out
  void give(void* data);
  bool empty() const { return all_.empty(); }

 private:
  Gpu& gpu_;
  std::multimap<size_t, void*> idle_;
  std::map<void*, size_t> all_;
};

// What is captured on a stream.
struct Capture {
  ScratchPool& scratch;
  std::vector<std::shared_ptr<const void>> kept = {};  // what the kernels of the piece need while it lives
};

void* create_program(int index);
void begin_capture(int index, void* stream, void* program);
void end_capture(int index, void* stream, void* program, size_t piece);
bool launch_program(int index, void* stream, void* program);
void destroy_program(int index, void* program);
void* nest_program(int index, void* program, size_t piece, When when, const void* flag);

}  // namespace pg::cuda
