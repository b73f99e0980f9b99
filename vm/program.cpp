// core.run: runs a program on the tensors of a call, checks the state that it depends on, and writes back.
#include <algorithm>
#include <set>
#include <utility>

#include "tensor/buffer.h"
#include "vm/args.h"
#include "vm/handle.h"
#include "vm/trace.h"
#include "vm/write_log.h"

namespace pg::vm {
namespace {

using Call = ProgramCall;

const RegistryKey kProgramClass;  // a metatable

struct ProgramHandle {
  Call* call;
};

int collect_program(lua_State* L) {
  delete std::exchange(static_cast<ProgramHandle*>(lua_touserdata(L, 1))->call, nullptr);
  return 0;
}

// Also of a box whose value is lent.
TapeNode* leaf_of(Box& box) {
  TapeNode* node = box.get().node();
  return node && node->leaf ? node : nullptr;
}

// Whether a call of a program passes its tensors in a list, and gets its results in one. Lists have room for more.
bool takes_list(lua_State* L) { return lua_gettop(L) == 2 && lua_istable(L, 2); }

// The values of the boxes while a program runs. Values that the program rewrites are moved out of their boxes, so that
// their memory can be written in place. If the run fails they are moved back.
class Lease {
 public:
  Lease(const Call& call, std::span<Box* const> boxes, bool donate) : call_(call), boxes_(boxes), donate_(donate) {
    for (size_t i = 0; i < call.input_boxes.size(); ++i) {
      Box& box = *boxes[size_t(call.input_boxes[i])];
      inputs.push_back(call.input_gradients[i] ? leaf_of(box)->grad->value : box.get());
    }
    if (donate) lend();
  }
  ~Lease() {
    if (donate_ && !done_) take_back();
  }
  Lease(const Lease&) = delete;
  void finish() { done_ = true; }

  Values inputs;

 private:
  Value& home(size_t i) const {
    Box& box = *boxes_[size_t(call_.input_boxes[i])];
    return call_.input_gradients[i] ? leaf_of(box)->grad->value : box.get();
  }
  // Moves the arrays out. The boxes keep their history, so that leaves stay leaves.
  void lend() {
    for (int32_t i : call_.rewritten) home(size_t(i)).array_ref() = {};
  }
  void take_back() {
    for (int32_t i : call_.rewritten) home(size_t(i)).array_ref() = inputs[size_t(i)].array_ref();
  }

  const Call& call_;
  std::span<Box* const> boxes_;
  bool donate_, done_ = false;
};

int refuse(lua_State* L, const std::string& reason) {
  lua_pushnil(L);
  lua_pushstring(L, reason.c_str());
  return 2;
}

constexpr const char* kChangedRequest = "the grad_req of a tensor has changed";

std::string unmet_state(const Call& call, State& state, std::span<Box* const> boxes) {
  if (call.recording && *call.recording != state.ctx.recording)
    return "recording is now " + std::string(state.ctx.recording ? "on" : "off");
  if (call.training && *call.training != state.ctx.training)
    return "training is now " + std::string(state.ctx.training ? "on" : "off");
  const uint64_t stamp = state.next_stamp++;
  for (Box* box : boxes)
    if (std::exchange(box->stamp, stamp) == stamp) return "two inputs are the same tensor now";
  for (size_t i = 0; i < call.input_boxes.size(); ++i)
    if (call.input_gradients[i] && !leaf_of(*boxes[size_t(call.input_boxes[i])])) return "a tensor has no gradient now";
  for (const auto& w : call.writes) {
    const bool leaf = leaf_of(*boxes[size_t(w.box)]) != nullptr;
    if (w.gradient && !leaf) return "a tensor has no gradient now";
    if (w.leaf && *w.leaf != leaf) return "a tensor that is written to has a gradient now, or has none any more";
  }
  for (const auto& f : call.fresh) {
    const TapeNode* leaf = leaf_of(*boxes[size_t(f.box)]);
    if (!leaf || (f.expected >= 0 && leaf->fresh != bool(f.expected))) return "whether a gradient is fresh has changed";
    if (leaf->req != f.req) return kChangedRequest;
  }
  for (int32_t place : call.without_history)
    if (has_history(boxes[size_t(place)]->get()))
      return "a tensor has a history now, through which a gradient may flow";
  for (int32_t place : call.unrequested) {
    const TapeNode* leaf = leaf_of(*boxes[size_t(place)]);
    if (!leaf || leaf->req != GradReq::kNull) return kChangedRequest;
  }
  return "";
}

// Throws if a target cannot be written, as the script's own in-place call would, before anything is written.
void check_targets(const Call& call, std::span<Box* const> boxes) {
  for (const auto& w : call.writes)
    if (!w.gradient) check_writable(*boxes[size_t(w.box)], w.op.c_str());
}

void check_gradients(const Call& call, std::span<Box* const> boxes, const Values& out) {
  for (const auto& w : call.writes) {
    const Value& now = out[size_t(w.output)];
    if (w.gradient) check_gradient_type(*leaf_of(*boxes[size_t(w.box)]), now.type());
  }
}

void write_back(const Call& call, std::span<Box* const> boxes, Values& out) {
  for (const auto& w : call.writes) {
    Box& box = *boxes[size_t(w.box)];
    TapeNode* leaf = leaf_of(box);
    Value result = out[size_t(w.output)];
    if (w.gradient) {
      leaf->grad->value = result.detached();
      continue;
    }
    if (leaf) result.link(leaf, 0);
    set_value(box, std::move(result));
  }
  for (const auto& f : call.fresh) leaf_of(*boxes[size_t(f.box)])->fresh = f.after;
  for (const auto& made : call.made_leaves) {
    TapeNode* leaf = out[size_t(made.output)].node();
    if (!leaf || !leaf->leaf) continue;
    if (made.gradient >= 0) leaf->grad->value = out[size_t(made.gradient)].detached();
    leaf->fresh = made.fresh;
  }
}

// Sets the coroutine in which x:tap calls its function, during a run.
class Running {
 public:
  Running(State& state, lua_State* L) : state_(state), saved_(std::exchange(state.running, L)) {}
  ~Running() { state_.running = saved_; }
  Running(const Running&) = delete;

 private:
  State& state_;
  lua_State* saved_;
};

// After a run in which the job was suspended: others may have changed what the results go to.
void check_unchanged(const Call& call, std::span<Box* const> boxes) {
  const auto has_leaf = [&](int32_t place) { return leaf_of(*boxes[size_t(place)]) != nullptr; };
  bool good = std::all_of(boxes.begin(), boxes.end(), [](Box* box) { return box->get().defined(); });
  for (const auto& w : call.writes) good = good && (!w.gradient || has_leaf(w.box));
  for (const auto& f : call.fresh) good = good && has_leaf(f.box);
  if (!good)
    fail(call.program->options().name.c_str(),
         "a tensor of this program was released, or lost its gradient, while its job was suspended");
  check_targets(call, boxes);
}

void note_writes(State& state, const Call& call, std::span<Box* const> boxes) {
  for (const auto& w : call.writes) {
    Box& box = *boxes[size_t(w.box)];
    if (w.gradient)
      note_write(state, leaf_of(box)->grad);
    else
      note_write(box);
  }
}

Values run_call(State& state, const Call& call, std::span<Box* const> boxes) {
  check_targets(call, boxes);
  if (state.write_log) note_writes(state, call, boxes);
  const ScopedFlag recording(state.ctx.recording, state.ctx.recording || call.records);
  // In a job nothing is lent: while it is suspended others see the parameters and gradients as they were.
  const bool lends = !state.ctx.recording && !state.ctx.suspender;
  const uint64_t suspensions = state.ctx.suspensions;
  Lease lease(call, boxes, lends);
  const auto old_gradient = [&](int32_t output) -> Value* {
    const int32_t write = size_t(output) < call.replaced.size() ? call.replaced[size_t(output)] : -1;
    return write < 0 ? nullptr : &leaf_of(*boxes[size_t(call.writes[size_t(write)].box)])->grad->value;
  };
  const Spare spare(old_gradient);
  const Ref<Program> first = std::exchange(call.first, {});
  Values out = (first ? first : call.program)->run(state.ctx, lease.inputs, lends ? &spare : nullptr);
  if (state.ctx.suspensions != suspensions) check_unchanged(call, boxes);
  check_gradients(call, boxes, out);
  lease.finish();
  lease.inputs.clear();
  write_back(call, boxes, out);
  return out;
}

// A program computes for longer than an op until it has made as much garbage, and depends less on memory that the
// caches hold. With collections as often as for ops, ten ops on 1 M elements took a quarter more time.
constexpr int kResultShare = 2;

}  // namespace

int push_call_results(lua_State* L, State& state, const ProgramCall& call, Values out, int share) {
  const bool listed = takes_list(L);
  lua_settop(L, 1);  // thousands of arguments leave no room for results
  Values results;
  for (int32_t k : call.results) results.push_back(out[size_t(k)]);
  out.clear();
  const int count = int(results.size());
  if (listed) {
    lua_createtable(L, count, 0);
    for (size_t i = 0; i < results.size(); ++i) {
      Box& box = push_box(L, state, std::move(results[i]));
      state.pending_bytes -= box.bytes - box.bytes / share;
      box.read_only = i < call.read_only.size() && call.read_only[i];
      lua_rawseti(L, -2, int(i) + 1);
    }
    return 1;
  }
  push_results(L, state, results, share);
  for (size_t i = 0; i < call.read_only.size(); ++i)
    if (call.read_only[i]) to_box(L, state, int(i) - count)->read_only = true;
  return count;
}

namespace {

// run(program, tensors… or a list) → results, or a list of them. Returns nil and the reason if the script has to be
// traced again.
int run_program(lua_State* L, State& state) {
  if (state.trace) return replay_program(L, state);
  state.make_room(L);
  state.update_modes();
  const Call& call = check_program(L, 1);
  SmallVector<Box*, 16> boxes = check_boxes(L, state, call, "run");
  const std::string unmet = unmet_state(call, state, boxes);
  if (!unmet.empty()) return refuse(L, unmet);
  const Running running(state, L);
  Values out;
  try {
    out = run_call(state, call, boxes);
  } catch (const Retrace& e) {
    return refuse(L, e.what());
  } catch (const Refused& e) {
    return refuse(L, e.what());
  } catch (const PositionedError& e) {
    if (call.of_model) throw error_of_caller(call.program->trace(), e);
    throw;
  } catch (const OutOfMemory&) {
    if (allocation_failed()) throw;  // a test requested the failure
    state.collect_garbage(L);
    out = run_call(state, call, boxes);
  }
  return push_call_results(L, state, call, std::move(out), kResultShare);
}

// program:graph() → the text of the trace. program:graph("optimized") → the text of the graph that the last run
// executed.
int program_text(lua_State* L, State&) {
  const Program& program = *check_program(L, 1).program;
  lua_pushstring(L, to_string(lua_isnoneornil(L, 2) ? program.trace() : program.optimized()).c_str());
  return 1;
}

int program_dot(lua_State* L, State&) {
  lua_pushstring(L, to_dot(check_program(L, 1).program->trace()).c_str());
  return 1;
}

// program:info() → the number of specializations, the bytes of arenas
int program_info(lua_State* L, State&) {
  const Program& program = *check_program(L, 1).program;
  lua_pushnumber(L, double(program.specializations()));
  lua_pushnumber(L, double(program.arena_bytes()));
  return 2;
}

}  // namespace

SmallVector<Box*, 16> check_boxes(lua_State* L, State& state, const ProgramCall& call, const char* raiser) {
  const char* name = call.program->options().name.c_str();
  const bool listed = takes_list(L);
  const int given = listed ? int(lua_objlen(L, 2)) : lua_gettop(L) - 1;
  if (given != call.boxes)
    throw Error(fmt::format("{}: the program takes {} tensors, got {}", raiser, call.boxes, given));
  SmallVector<Box*, 16> boxes;
  for (int k = 1; k <= given; ++k) {
    if (listed) lua_rawgeti(L, 2, k);
    const int i = listed ? 3 : k + 1;
    boxes.push_back(&check_box(L, state, i, name, "input"));
    require_value(L, *boxes.back(), i, name, "input");
    if (listed) lua_pop(L, 1);
  }
  return boxes;
}

ProgramCall& check_program(lua_State* L, int i) {
  ProgramHandle* handle = to_handle<ProgramHandle>(L, i, kProgramClass);
  if (!handle || !handle->call) throw Error("run: expected a program");
  return *handle->call;
}

static std::vector<int32_t> rewritten_inputs(const ProgramCall& call) {
  std::set<std::pair<int32_t, bool>> written;  // a tensor, or its gradient
  for (const auto& w : call.writes) written.emplace(w.box, w.gradient);
  std::vector<int32_t> out;
  for (size_t i = 0; i < call.input_boxes.size(); ++i)
    if (written.count({call.input_boxes[i], bool(call.input_gradients[i])})) out.push_back(int32_t(i));
  return out;
}

void push_program(lua_State* L, std::unique_ptr<ProgramCall> call) {
  call->rewritten = rewritten_inputs(*call);
  auto* program = static_cast<ProgramHandle*>(lua_newuserdata(L, sizeof(ProgramHandle)));
  program->call = nullptr;
  kProgramClass.push_table(L);
  lua_setmetatable(L, -2);
  program->call = call.release();
}

void open_program(lua_State* L, State& state) {
  register_functions(L, state, {{"run", entry<run_program>}});
  make_class(L, state, kProgramClass, collect_program,
             {{"graph", entry<program_text>}, {"dot", entry<program_dot>}, {"info", entry<program_info>}});
}

}  // namespace pg::vm
