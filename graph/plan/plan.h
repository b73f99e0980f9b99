// Plan: a specialized graph made ready to run. It has steps with resolved kernels, a place in memory for every value,
// and a commit section that may overwrite inputs. It is immutable except for its pool of frames, so runs on several
// threads may share it (graph/exec/exec.h).
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/ir/control.h"

namespace pg {

class FusedKernel;
class KeptShelf;
class Plan;

// An output of a program that replaces an input: the caller gives up the input's value.
struct Replacement {
  int32_t output, input;
};

// Values that one plan leaves for another in a single block of memory: their places in it, which both plans know.
struct ValueBlock {
  std::vector<int32_t> members;  // outputs of the plan that leaves them, inputs of the other
  std::vector<Bytes> offsets;    // by member
  Bytes bytes = {};              // 0: there is no block
};

struct PlanOptions {
  bool fuse = true;          // run kFused nodes as one kernel; false: node by node
  bool in_place = true;      // a step may write over an operand that no later step reads
  bool prepare = true;       // use prepared kernels
  bool pack = true;          // pack weights
  bool static_alloc = true;  // frames keep their arena between runs
  bool body = false;  // of a branch or loop: the caller provides its memory, and every output is a separate array
  OutputPlaces places = {};  // of the body of a loop
  std::vector<int32_t> lendable =
      {};  // outputs for which the caller of a run may have spare memory (graph/exec/exec.h)
  std::vector<Replacement> replacements = {};
  std::vector<int32_t> changing = {};  // inputs that change after most runs, as parameters in training: not packed
  // Each run allocates the block `left`, and writes outputs into it. A run takes over the block `consumed` that its
  // inputs lie in, and writes over inputs after their last use. Either plan keeps other values in the free parts of its
  // block, so that both together need little more than the values that live at one time. On the CPU only.
  ValueBlock left = {}, consumed = {};
  std::string name = {};                  // of the program, for observers
  std::shared_ptr<KeptShelf> shelf = {};  // of the program: where its plans share the results of invariant steps
};

// A piece of memory that one or more values share.
struct Storage {
  enum Kind : uint8_t { kInput, kConstant, kArena, kOutput, kImmediate, kStack, kKept };
  static constexpr int32_t kBlock = -1;  // PlanOptions::left or consumed
  Kind kind = kArena;
  Device device;
  int32_t index = -1;  // of Plan's inputs, constants, immediates, fresh or kept; of kStack: of Frame::stacks
  bool lasts = false;  // most runs find the same contents: an input that lasts, or the result of an invariant step
  int32_t arena = 0;   // of kArena: index into Plan::arenas, or kBlock
  int32_t donor = -1;  // of kOutput: the input whose buffer it takes if that is writable
  Bytes bytes = {};
  size_t offset = 0;              // of kArena, and of members of the block
  int32_t first = -1, last = -1;  // first step that writes it, last step that uses it (of kOutput: past the end)
  bool in_block = false;          // a member of the block, or placed between its members
  bool pinned = false;  // of a branch or loop that a program may have, so that its address should always be the same
};

// The memory of a view of a step. Plan::views has its type and strides, a frame has its pointer.
struct Slot {
  int32_t storage = -1;  // -1: an absent input
  int64_t offset = 0;    // bytes
  int32_t written = -1;  // the view whose step wrote the contents; -1: written before the run
};

// A place in the scratch memory of a branch or loop. That memory has one block on each device that the bodies use.
struct ScratchPlace {
  int32_t block = -1;  // index into ControlStep::blocks
  size_t offset = 0;
};
struct ScratchBlock {
  Device device;
  Bytes bytes = {};
};

// A branch or loop, with the plans of its bodies. Its views are its operands and outputs. See graph/exec/control.cpp.
struct ControlStep {
  bool is_loop = true;
  LoopForm loop;
  std::string name;
  std::vector<BodyStream> streams;
  std::vector<std::shared_ptr<const Plan>> bodies;
  std::vector<ScratchBlock> blocks;
  std::vector<std::vector<ScratchPlace>> arenas;  // by body and by its arenas; those of different bodies overlap
  ScratchPlace index, flag;                       // of loops: int64; of conditional loops: bool
  std::vector<ScratchPlace> slots;                // of loops: the second buffers of the carries
  // How a program of a device contains it (graph/plan/segments.h).
  bool repeats = false;            // a loop that the device repeats, instead of having its steps one after the other
  bool nests = false;              // this or something in its bodies is a condition of the device
  ScratchPlace more;               // of a loop that repeats: bool
  std::vector<ScratchPlace> rows;  // of a loop that repeats: a row of each slice and stacked output
};

struct Step {
  const OpDef* op = nullptr;  // of a fused step: the op of its last output
  KernelFn kernel = nullptr;  // if null, one of the following:
  const FusedKernel* fused = nullptr;
  const PreparedKernel* prepared = nullptr;  // used instead of kernel
  const ControlStep* control = nullptr;
  const Graph* body = nullptr;  // of a fused step; part of Plan::source
  const Attrs* attrs = nullptr;
  int32_t in = 0, in_count = 0, out = 0, out_count = 0;  // indices into Plan::views
  int32_t random = -1;                                   // index into Plan::random
  int32_t scratch = -1,
          scratch_count = 0;    // its scratch memory: one view of a prepared step, one per block of a control step
  int32_t pack = -1;            // index into Plan::packs
  int32_t line = -1;            // index into Plan::lines
  Device device = {};           // the device of the kernel
  const char* place = nullptr;  // KernelArgs::place, for devices other than the CPU
  bool poll = false;            // checks for cancellation before it runs
  int32_t at_once = 1;          // so many steps from this one on may run at once: fused ones that do not share memory
  bool varies = false;          // in a segment: what it queues depends on more than the addresses of its memory
  int32_t work = 1;             // in a segment: how many kernels it queues, about
};

// Steps from `begin` to `end` that only queue work on one device.
struct Segment {
  int32_t begin, end;
  Device device;
};

// A random step: its generator, and its tick counted from the generator's state at the start of the run.
struct RandomStep {
  int32_t step = 0;
  uint64_t generator = 0, tick = 0;
};

// An input of a prepared step. Its packed form is kept until the array changes.
struct PackedInput {
  int32_t view = -1;
  std::shared_ptr<const PreparedKernel> kernel;
};

struct PlanOutput {
  int32_t storage = -1;
  Ref<Array> layout;     // type, strides, offset in the storage; no buffer
  int32_t written = -1;  // as in Slot
  int32_t same_as = -1;  // an earlier output with the same value
  int32_t before = -1;   // see OutputPlaces; the storage is the input that is the carry
};

// A buffer that each run allocates: its storage, and the array that outputs are or view.
struct FreshOutput {
  int32_t storage = -1;
  Ref<Array> layout;
  int32_t lendable = -1;  // the output whose spare memory it may take when step Plan::lend begins; -1: none
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
  int32_t invariant = 0;  // steps before this one depend only on inputs that last; see graph/exec/kept.h
  int32_t commit = 0;     // steps from here on may overwrite inputs; none of them fails after it has written
  int32_t lend = 0;  // no step from here on can fail, and none before it writes an output with FreshOutput::lendable
  std::vector<Storage> storages;
  std::vector<View> views;  // without pointers
  std::vector<Slot> slots;  // one per view
  std::vector<Type> input_types;
  std::vector<PlanOutput> outputs;
  std::vector<FreshOutput> fresh;
  std::vector<Value> constants;
  std::vector<Value> immediates;  // numbers, as 0-dim arrays on the CPU
  std::vector<RandomStep> random;
  std::vector<Arena> arenas;
  std::vector<std::string> lines;
  std::vector<Ref<Array>> layouts;                 // targets of the pointers in views
  std::vector<std::unique_ptr<Attrs>> attributes;  // targets of Step::attrs
  std::vector<std::shared_ptr<const FusedKernel>> fused;
  std::vector<std::shared_ptr<const PreparedKernel>> prepared;
  std::vector<PackedInput> packs;
  std::vector<std::unique_ptr<const ControlStep>> controls;
  int32_t stacks = 0;             // number of storages of kind kStack
  std::vector<int32_t> kept;      // storages of kind kKept: results of invariant steps that other steps read
  std::vector<int32_t> sources;   // inputs that invariant steps read
  std::string invariant_steps;    // a text that is equal for equal invariant steps and kept results
  std::vector<Segment> segments;  // steps that a device takes as a program, in order
  std::vector<bool> staged;       // by input, or empty: whether a run may read a copy of it, at an address that stays
  std::unique_ptr<FramePool> frames;
  const uint64_t serial;                // the number of the plan; no other one has it
  std::shared_ptr<const Graph> source;  // the graph of a plan with fused steps, or with steps that work in place

  // The same program node by node, where no step writes over an operand. Anomaly detection uses it to name the op, the
  // line and the operands. Made on first use.
  const Plan& node_by_node() const;

  Bytes block_bytes() const { return std::max(options.left.bytes, options.consumed.bytes); }
  Bytes arena_bytes() const;  // of one frame
  size_t held_bytes() const;  // in arenas that frames keep now

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<const Plan> node_by_node_;
};

// Throws the error of an op without a kernel, and Error for nodes that a specialized graph cannot have.
std::shared_ptr<const Plan> make_plan(const Graph& specialized, const PlanOptions& options = {});

// Checks the invariants of a plan: storages that live at the same time do not overlap, every read follows a write, and
// offsets are aligned and in bounds. Throws Error "plan: …". Every plan is verified in debug builds, after
// verify_plans(true), and with PERIGEE_VERIFY_PLANS in the environment.
void verify(const Plan& plan);
void verify_plans(bool on);

// One line per step, for tests and for debugging.
std::string to_string(const Plan& plan);

// What a step runs: "conv2d", "fused mul add", "while_loop".
std::string label_of(const Step& step);

}  // namespace pg
