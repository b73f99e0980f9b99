// Context: everything an application of an op depends on besides its inputs. One a Lua state; no part of
// it is a global.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/runtime.h"

namespace pg {

using Values = SmallVector<Value, 2>;

class Tracer;

// What happens to an op that is applied: it is run (EagerInterpreter) or becomes a node of a program (GraphBuilder).
class Interpreter {
 public:
  virtual ~Interpreter() = default;
  // May move out of `inputs` to let an in-place kernel reuse a buffer, only after the last point of failure.
  virtual Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) = 0;
  // An array with one number everywhere.
  virtual Value filled(Context& ctx, const Type& type, double number);
  // The interpreter itself while a script is traced: then all that a run decides stays open (random keys, modes, and
  // gradients, whose rules read shapes).
  virtual Tracer* tracer() { return nullptr; }
};

// What the gradient tape asks of a trace.
class Tracer : public Interpreter {
 public:
  Tracer* tracer() override { return this; }
  virtual Value detach(Context& ctx, const Value& value) = 0;
  virtual Value leaf(Context& ctx, const Value& value, TapeNode* leaf) = 0;  // the value as the leaf
  // What a tensor that held `old` holds after op has stored `now` in it. A leaf stays one. See check_write.
  virtual Value write(Context& ctx, const std::string& op, const Value& old, const Value& now) = 0;
  virtual Value value_of(TapeNode* leaf) = 0;
  // One gradient for each of `wanted`, zeros where nothing flows. Tape entries below the sequence `first` end the walk.
  virtual Values gradient(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                          std::span<const Value> wanted, bool create_graph, uint64_t first) = 0;
  virtual Value read_gradient(TapeNode& leaf) = 0;
  virtual void write_gradient(TapeNode& leaf, Value gradient) = 0;
};

// A place in a ring, which it leaves when it goes.
struct RingLink {
  RingLink *previous = this, *next = this;
  RingLink() = default;
  RingLink(const RingLink&) = delete;
  ~RingLink() { leave(); }
  void leave() {
    previous->next = next;
    next->previous = previous;
    previous = next = this;
  }
  void join(RingLink& ring) {
    leave();
    previous = &ring;
    next = ring.next;
    next->previous = ring.next = this;
  }
  bool alone() const { return next == this; }
};

class Context {
 public:
  Context();

  Ref<Runtime> runtime;  // the one that was current when the context was made
  Interpreter* interpreter;
  bool recording = false;
  bool training = false;
  Ref<Generator> generator;              // the default one
  std::atomic<bool> cancel{false};       // a request to stop, taken back when the error Cancelled is raised,
  std::atomic<bool> cancels_all{false};  // but not while this is set: then every op from now on raises it
  bool detect_anomaly = false;
  std::function<std::string()> script_position;  // "file:line", asked when a tape entry is made in anomaly mode
  uint64_t next_sequence = 1;                    // of tape nodes
  uint64_t next_walk = 1;                        // of walks over the tape

  // Leaves whose gradient has a history, which may go back to them: see break_cycles in tape.h.
  RingLink suspects;
  size_t new_suspects = 0, suspect_bytes = 0;  // since the last look

  void poll() {
    if (cancel.load(std::memory_order_relaxed) && cancel_is_due()) raise_cancelled();
  }

  // Runs a kernel that may stop half way: its outputs are new, nobody misses them.
  template <class F>
  void cancellable(F&& kernel) {
    const PollScope scope(&cancel);
    try {
      kernel();
    } catch (const Cancelled&) {
      raise_cancelled();
    }
  }

 private:
  [[noreturn]] void raise_cancelled();
};

// Sets a flag for the extent of a C++ scope.
class ScopedFlag {
 public:
  ScopedFlag(bool& flag, bool value) : flag_(flag), saved_(flag) { flag = value; }
  ~ScopedFlag() { flag_ = saved_; }

 private:
  bool& flag_;
  bool saved_;
};

// The one door: checks, infers, runs or records. Inputs are flattened in the order of the row: a list
// input in a row (several lists of one op have equal lengths); absent optional inputs are undefined Values.
// On an exception the inputs are as they were; what a device still had to do may have failed later (LateError), see
// tensor/device_table.h.
Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs);

// Runs the op's kernel, or its decomposition, without recording. Used by interpreters.
Interpreter& eager_interpreter();

// Type inference alone, the same that apply does. Throws the op's errors.
void infer_types(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, SmallVector<Type, 2>& out);

// The dtype in which a pointwise op computes on these inputs (before a comparison answers bool).
DType pointwise_compute_dtype(const OpDef& op, std::span<const Value> inputs);

// Values from scalars, and element access; all synchronous.
Value make_array(const Type& type);  // uninitialised
Value make_filled(const Type& type, double number);
Value make_scalar(double number, DType dtype, Device device = {});
bool has_nan(const Value& value);                       // of a contiguous floating array on the CPU
double item(const Value& value);                        // the one element of a one-element array
Value to_contiguous(Context& ctx, const Value& value);  // itself when it is
Value to_device(Context& ctx, const Value& value, Device device);

}  // namespace pg
