// Plan: a specialized graph made ready to run: steps with resolved kernels, every value's place in memory, the section
// that may overwrite inputs. Immutable but for its pool of frames; runs (graph/exec/exec.h) may share it between
// threads.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace pg {

class FusedKernel;
class Plan;

struct PlanOptions {
  bool fuse = true;          // kFused nodes as one kernel; false: node by node
  bool in_place = true;      // a step may write over an operand that nobody reads later
  bool prepare = true;       // prepared kernels
  bool pack = true;          // packed weights; not for programs whose parameters change from run to run
  bool static_alloc = true;  // frames keep their arena between runs
  bool body = false;  // of a branch or loop: whoever runs it gives it its memory; every output is an array of its own
};

// Where the bytes of one or more values live.
struct Storage {
  enum Kind : uint8_t { kInput, kConstant, kArena, kOutput, kImmediate, kStack };
  Kind kind = kArena;
  Device device;
  int32_t index = -1;  // of Plan's inputs, constants, immediates or fresh; of kStack: of Frame::stacks
  int32_t arena = 0;   // of kArena: index of Plan::arenas
  int32_t donor = -1;  // of kOutput: the input whose buffer it takes where that is writable
  Bytes bytes = {};
  size_t offset = 0;              // of kArena
  int32_t first = -1, last = -1;  // steps that write it first and use it last; of kOutput `last` is past the end
};

// What a view of a step looks at: Plan::views has its type and strides, a frame its pointer.
struct Slot {
  int32_t storage = -1;  // -1: an absent input
  int64_t offset = 0;    // bytes
  int32_t written = -1;  // the view whose step made what stands there; -1: it stood there before the run
};

// A place in the scratch memory of a branch or loop, which has one block on each device that its bodies work on.
struct ScratchPlace {
  int32_t block = -1;  // of ControlStep::blocks
  size_t offset = 0;
};
struct ScratchBlock {
  Device device;
  Bytes bytes = {};
};

// A branch or loop, with the plans of its bodies. Its views are its operands and outputs; its scratch memory is laid
// out as here. See graph/exec/control.cpp.
struct ControlStep {
  NodeKind kind = NodeKind::kLoop;
  LoopForm loop;
  std::string name;
  std::vector<BodyStream> streams;
  std::vector<std::shared_ptr<const Plan>> bodies;
  std::vector<ScratchBlock> blocks;
  std::vector<std::vector<ScratchPlace>> arenas;  // by body and by its arenas; those of several bodies overlap
  ScratchPlace index, flag;                       // of loops: int64, and bool of conditional ones
  std::vector<ScratchPlace> slots;                // of loops: the second places of the carries
};

struct Step {
  const OpDef* op = nullptr;  // of a fused step: the op that makes its last output
  KernelFn kernel = nullptr;  // or, when null:
  const FusedKernel* fused = nullptr;
  const PreparedKernel* prepared = nullptr;  // used before kernel
  const ControlStep* control = nullptr;
  const Attrs* attrs = nullptr;
  int32_t in = 0, in_count = 0, out = 0, out_count = 0;  // into Plan::views
  int32_t random = -1;                                   // index of Plan::random
  int32_t scratch = -1,
          scratch_count = 0;  // views of its scratch memory: one of a prepared step, one a block of a control step
  int32_t pack = -1;          // index of Plan::packs
  int32_t line = -1;          // into Plan::lines
  bool poll = false;          // asks for cancellation first
};

// A random step: which generator and how many ticks after its state at the start of the run.
struct RandomStep {
  int32_t step = 0;
  uint64_t generator = 0, tick = 0;
};

// An input of a prepared step that is kept packed while the array stays the same.
struct PackedInput {
  int32_t view = -1;
  std::shared_ptr<const PreparedKernel> kernel;
};

struct PlanOutput {
  int32_t storage = -1;
  Ref<Array> layout;     // type, strides, offset in the storage; no buffer
  int32_t written = -1;  // as in Slot
  int32_t same_as = -1;  // an earlier output that is the same value
};

// A buffer that each run allocates: the storage, and the array that outputs are or are views of.
struct FreshOutput {
  int32_t storage = -1;
  Ref<Array> layout;
};

struct Arena {
  Device device;
  Bytes bytes = {};
  Bytes lower_bound = {};  // the largest sum of aligned sizes that live at one step
};

class FramePool;

class Plan {
 public:
  Plan();
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  PlanOptions options;
  std::vector<Step> steps;
  int32_t commit = 0;  // steps from here on may overwrite inputs; none of them can fail half way
  std::vector<Storage> storages;
  std::vector<View> views;  // without pointers
  std::vector<Slot> slots;  // one a view
  std::vector<Type> input_types;
  std::vector<PlanOutput> outputs;
  std::vector<FreshOutput> fresh;
  std::vector<Value> constants;
  std::vector<Value> immediates;  // numbers, as 0-dim arrays on the CPU
  std::vector<RandomStep> random;
  std::vector<Arena> arenas;
  std::vector<std::string> lines;
  std::vector<Ref<Array>> layouts;                 // what types and strides of views point to
  std::vector<std::unique_ptr<Attrs>> attributes;  // what Step::attrs points to
  std::vector<std::shared_ptr<const FusedKernel>> fused;
  std::vector<std::shared_ptr<const PreparedKernel>> prepared;
  std::vector<PackedInput> packs;
  std::vector<std::unique_ptr<const ControlStep>> controls;
  int32_t stacks = 0;  // storages of kind kStack
  std::unique_ptr<FramePool> frames;
  std::shared_ptr<const Graph> source;  // of a plan with fused steps: the graph

  // The same program node by node, to name the op and the line that anomaly detection looks for. Made when first asked
  // for.
  const Plan& node_by_node() const;

  Bytes arena_bytes() const;  // of one frame
  size_t held_bytes() const;  // in arenas that frames keep at the moment

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<const Plan> node_by_node_;
};

// Throws the errors of ops that have no kernel, and for nodes that are not of a specialized graph.
std::shared_ptr<const Plan> make_plan(const Graph& specialized, const PlanOptions& options = {});

// Checks what a plan must be: storages that live at one time do not overlap, every read has a write before it, offsets
// are aligned and inside. Throws Error "plan: …". Runs over every plan in debug builds and after verify_plans(true) or
// with PERIGEE_VERIFY_PLANS in the environment.
void verify(const Plan& plan);
void verify_plans(bool on);

// One line a step; for tests and for people.
std::string to_string(const Plan& plan);

}  // namespace pg
