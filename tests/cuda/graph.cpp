// Graphs of the fake driver: chains of nodes, which are captured work, kernels that set conditions, and conditions.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../device/queue.h"
#include "driver.h"

namespace {

// Work of a stream that was captured.
struct Work {
  Work() : program(queue::create_program(0)) {}
  Work(const Work& other) : program(queue::copy_program(other.program)) {}
  Work& operator=(const Work& other) {
    queue::destroy_program(0, std::exchange(program, queue::copy_program(other.program)));
    return *this;
  }
  ~Work() { queue::destroy_program(0, program); }
  void* program;
};

struct Condition {
  unsigned value = 0;
  bool has_node = false;
};

}  // namespace

struct CUgraphNode_st {
  Work work = {};
  std::function<void()> set = {};  // of a kernel that sets a condition
  std::shared_ptr<Condition> condition = {};
  bool repeats = false;
  std::unique_ptr<CUgraph_st> body = {};  // of a condition
};
struct CUgraph_st {
  Work work = {};  // of a graph that was captured
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes = {};
  std::vector<std::shared_ptr<Condition>> conditions = {};  // whose handles belong to the graph
};
struct CUgraphExec_st {
  struct Step {
    CUgraphNode from;
    Work work;
    std::function<void()> run;  // instead of work
  };
  std::vector<Step> steps;
};

namespace {

std::mutex lock;
std::map<CUgraphConditionalHandle, std::weak_ptr<Condition>> handles;

std::shared_ptr<Condition> condition_of(CUgraphConditionalHandle handle) {
  const std::lock_guard hold(lock);
  const auto found = handles.find(handle);
  return found == handles.end() ? nullptr : found->second.lock();
}

void run_steps(const CUgraphExec_st& program) {
  for (const auto& step : program.steps)
    if (step.run)
      step.run();
    else
      queue::run_now(step.work.program);
}

// Null for a graph with a handle that has no node.
std::shared_ptr<CUgraphExec_st> instance_of(const CUgraph_st& graph) {
  for (const auto& condition : graph.conditions)
    if (!condition->has_node) return nullptr;
  auto made = std::make_shared<CUgraphExec_st>();
  for (const auto& node : graph.nodes) {
    CUgraphExec_st::Step step{node.get(), node->work, node->set};
    if (node->body) {
      const auto body = instance_of(*node->body);
      if (!body) return nullptr;
      step.run = [body, condition = node->condition, repeats = node->repeats] {
        while (condition->value) {
          run_steps(*body);
          if (!repeats) break;
        }
      };
    }
    made->steps.push_back(std::move(step));
  }
  return made;
}

// The nodes of a graph are a chain.
bool at_end(const CUgraph_st& graph, const CUgraphNode* after, size_t count) {
  return count == !graph.nodes.empty() && (!count || *after == graph.nodes.back().get());
}

CUresult add(CUgraphNode* node, CUgraph_st& graph, std::unique_ptr<CUgraphNode_st> made) {
  graph.nodes.push_back(std::move(made));
  return *node = graph.nodes.back().get(), CUDA_SUCCESS;
}

// Its argument is the handle, the address of a flag, and whether the value is the inverse of the flag.
CUresult add_kernel(CUgraphNode* node, CUgraph_st& graph, const CUDA_KERNEL_NODE_PARAMS_v3& params) {
  struct Set {
    CUgraphConditionalHandle handle;
    const bool* flag;
    uint32_t inverse;
  };
  if (params.func != fake::condition_kernel() || params.gridDimX != 1 || params.blockDimX != 1)
    return CUDA_ERROR_NOT_SUPPORTED;
  const Set set = *static_cast<const Set*>(params.kernelParams[0]);
  const auto condition = condition_of(set.handle);
  if (!condition) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphNode_st>();
  made->set = [=] { condition->value = unsigned(*set.flag) ^ set.inverse; };
  return add(node, graph, std::move(made));
}

CUresult add_condition(CUgraphNode* node, CUgraph_st& graph, CUDA_CONDITIONAL_NODE_PARAMS& params) {
  const auto condition = condition_of(params.handle);
  if (!condition || condition->has_node || params.size != 1) return CUDA_ERROR_INVALID_VALUE;
  condition->has_node = true;
  auto made = std::make_unique<CUgraphNode_st>();
  made->condition = condition;
  made->repeats = params.type == CU_GRAPH_COND_TYPE_WHILE;
  made->body = std::make_unique<CUgraph_st>();
  thread_local CUgraph bodies[1];
  bodies[0] = made->body.get();
  params.phGraph_out = bodies;
  return add(node, graph, std::move(made));
}

}  // namespace

CUmodule fake::condition_module() {
  static char module;
  return reinterpret_cast<CUmodule>(&module);
}
CUfunction fake::condition_kernel() {
  static char kernel;
  return reinterpret_cast<CUfunction>(&kernel);
}

#pragma GCC visibility push(default)
extern "C" {

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode) {
  return queue::begin_capture(0, s, nullptr), CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph* graph) {
  FAKE(cuStreamEndCapture);
  auto made = std::make_unique<CUgraph_st>();
  queue::end_capture(0, s, made->work.program, 0);
  return *graph = made.release(), CUDA_SUCCESS;
}
CUresult cuGraphCreate(CUgraph* graph, unsigned) { return *graph = new CUgraph_st, CUDA_SUCCESS; }
CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
  return *count = queue::tasks_of(graph->work.program) + graph->nodes.size(), CUDA_SUCCESS;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                  CUgraph child) {
  if (queue::tasks_of(graph->work.program) || !child->nodes.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (!at_end(*graph, after, count)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphNode_st>();
  made->work = child->work;
  return add(node, *graph, std::move(made));
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext, unsigned value,
                                        unsigned flags) {
  FAKE(cuGraphConditionalHandleCreate);
  if (value != 0 || flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const auto& condition = graph->conditions.emplace_back(std::make_shared<Condition>());
  static CUgraphConditionalHandle last = 0;
  const std::lock_guard hold(lock);
  handles[*handle = ++last] = condition;
  return CUDA_SUCCESS;
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*,
                        size_t count, CUgraphNodeParams* params) {
  FAKE(cuGraphAddNode_v2);
  if (!at_end(*graph, after, count)) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) return add_kernel(node, *graph, params->kernel);
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return add_condition(node, *graph, params->conditional);
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphInstantiate(CUgraphExec* made, CUgraph graph, unsigned long long) {
  FAKE(cuGraphInstantiateWithFlags);
  const auto instance = instance_of(*graph);
  if (!instance) return CUDA_ERROR_INVALID_VALUE;
  return *made = new CUgraphExec_st(*instance), CUDA_SUCCESS;
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec program, CUgraphNode node, CUgraph child) {
  FAKE(cuGraphExecChildGraphNodeSetParams);
  for (auto& step : program->steps) {
    if (step.from != node || step.run) continue;
    if (queue::tasks_of(step.work.program) != queue::tasks_of(child->work.program)) return CUDA_ERROR_INVALID_VALUE;
    return step.work = child->work, CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphLaunch(CUgraphExec program, CUstream s) {
  FAKE(cuGraphLaunch);
  for (const auto& step : program->steps)
    if (step.run)
      queue::add(s, step.run);
    else
      queue::launch(0, s, step.work.program);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec program) { return delete program, CUDA_SUCCESS; }

}  // extern "C"
#pragma GCC visibility pop
