// What the handles of the C API are.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/exec/frozen.h"
#include "tensor/context.h"
#include "tensor/io/host_files.h"
#include "tensor/memory_account.h"
#include "tensor/runtime.h"
#include "tensor/value.h"
#include "vm/host/status.h"

struct perigee_tensor : pg::RefCounted<perigee_tensor> {
  explicit perigee_tensor(pg::Value value);
  static void destroy(perigee_tensor* tensor) { delete tensor; }

  const pg::Value value;
  const pg::Ref<pg::Runtime> runtime;
  bool is_target = false;  // whether the host may have results written into it

  // Row-major elements in host memory.
  const void* data();

 private:
  std::mutex lock_;
  pg::Value whole_;  // a copy, if `value` is not row-major in host memory
};

// What a run of a model uses besides the model. Later runs use it again.
struct ModelCall {
  pg::Context ctx;
  pg::Values arguments, targets, results;
  pg::FrozenGraph::Workspace work;
};

struct perigee_model : pg::RefCounted<perigee_model> {
  explicit perigee_model(pg::Ref<pg::FrozenGraph> graph);
  static void destroy(perigee_model* model) { delete model; }

  const pg::Ref<pg::FrozenGraph> graph;
  const pg::Ref<pg::Runtime> runtime;
  std::vector<std::string> inputs, outputs;  // names
  std::vector<pg::Type> input_types;         // at the export

  std::unique_ptr<ModelCall> take();
  void give(std::unique_ptr<ModelCall> call);  // allocates nothing

 private:
  std::mutex lock_;
  std::vector<std::unique_ptr<ModelCall>> idle_;
  size_t made_ = 0;
};

namespace pg::host {

// The extent of a call that belongs to no state. It may come from a callback of a state, whose files and limits do not
// hold for it.
class Border {
 public:
  explicit Border(Runtime& runtime) : runtime_(runtime), account_(nullptr), files_(nullptr) {}

 private:
  const ScopedRuntime runtime_;
  const ScopedAccount account_;
  const ScopedFiles files_;
};

// The handle of a runtime is the runtime.
inline Runtime& runtime_of(perigee_runtime* runtime, const char* function) {
  need(runtime, function, "runtime");
  return *reinterpret_cast<Runtime*>(runtime);
}

// A tensor of the host's memory, as perigee_tensor_wrap makes one. `function` is its name in messages. The current
// runtime keeps the handle's memory. release(user, data) is called when the memory is no longer used, but not if this
// throws.
Ref<perigee_tensor> wrap(const char* function, void* data, DType dtype, int rank, const int64_t* shape,
                         const int64_t* strides, void (*release)(void* user, void* data), void* user);

// Returns the object with one more reference, for the host.
template <class T>
T* give(const Ref<T>& object) {
  object->retain();
  return object.get();
}

}  // namespace pg::host
