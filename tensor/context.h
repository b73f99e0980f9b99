// Context: everything that the application of an op depends on besides its inputs. Each Lua state has one; there are no
// globals.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/packed.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/runtime.h"
#include "tensor/suspend.h"
#include "tensor/work_meter.h"

namespace pg {

using Values = SmallVector<Value, 2>;

class Tracer;
class Observer;
struct Work;

// How an applied op is handled: it runs (EagerInterpreter) or becomes a node of a program (GraphBuilder).
class Interpreter {
 public:
  virtual ~Interpreter() = default;
  // May move out of `inputs`, so that an in-place kernel reuses a buffer, but only after the last point of failure.
  virtual Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) = 0;
  // Returns an array with one number everywhere.
  virtual Value filled(Context& ctx, const Type& type, double number);
  // Returns the interpreter itself while a script is traced, else null. A trace leaves open what a run decides: random
  // keys, modes, and gradients, whose rules read shapes.
  virtual Tracer* tracer() { return nullptr; }
};

// The functions of a trace that the gradient tape calls.
class Tracer : public Interpreter {
 public:
  Tracer* tracer() override { return this; }
  virtual Value detach(Context& ctx, const Value& value) = 0;
  virtual Value leaf(Context& ctx, const Value& value, TapeNode* leaf) = 0;  // returns the value as a leaf
  // Returns the content of a tensor with content `old` after op stored `now` in it. A leaf stays one. See check_write.
  virtual Value write(Context& ctx, const std::string& op, const Value& old, const Value& now) = 0;
  virtual Value value_of(TapeNode* leaf) = 0;
  // Throws if gradients flow from a head to one of `wanted` through nodes of the tape from before the trace, which
  // cannot hold their ops. The walk ends below the sequence `first`.
  virtual void check_inside(std::span<const Value> heads, std::span<const Value> wanted, uint64_t first) = 0;
  // Returns one gradient per value in `wanted`, zeros where none flows. The walk ends below `first`.
  virtual Values gradient(Context& ctx, std::span<const Value> heads, std::span<const Value> cotangents,
                          std::span<const Value> wanted, bool create_graph, uint64_t first) = 0;
  virtual Value read_gradient(TapeNode& leaf) = 0;
  virtual void write_gradient(TapeNode& leaf, Value gradient) = 0;
};

// A link of a circular list. The destructor unlinks it.
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

  Ref<Runtime> runtime;  // the runtime that was current when the context was made
  Interpreter* interpreter;
  bool recording = false;
  bool training = false;
  Ref<Generator> generator;              // the default generator
  std::atomic<bool> cancel{false};       // a cancel request; cleared when Cancelled is thrown,
  std::atomic<bool> cancels_all{false};  // except while this is set: then every op throws it
  Suspender* suspender = nullptr;        // of the job whose slice is running, or null
  uint64_t suspensions = 0;              // how often jobs have been suspended
  WorkMeter* meter = nullptr;            // counts polls; the one that exceeds its limit cancels the call. Or null
  bool detect_anomaly = false;
  const char* raiser = nullptr;                  // the op that errors of applied ops name; null: the op itself
  std::function<std::string()> script_position;  // returns "file:line"; called for tape entries in anomaly mode
  Observer* observer = nullptr;                  // sees what runs, see tensor/observer.h; or null
  Work* work = nullptr;                          // the innermost work in progress that an observer has seen
  uint64_t next_sequence = 1;                    // number of the next tape node
  uint64_t next_walk = 1;                        // number of the next walk over the tape
  uint64_t marking_walk = 0;                     // the walk that has marked its nodes last; 0: none that goes on

  PreparedCalls prepared;  // of eager calls

  // Leaves whose gradient has a history that may refer to them: see break_cycles in tape.h.
  RingLink suspects;
  size_t new_suspects = 0, suspect_bytes = 0;  // since the last check

  void poll() {
    if (meter) count_poll();
    if (cancel.load(std::memory_order_relaxed) && cancel_is_due()) raise_cancelled();
    if (suspender) suspend_if_due();
  }

  // Runs a kernel that may stop half way: its outputs are new, so nothing else refers to them.
  template <class F>
  void cancellable(F&& kernel) {
    const PollScope scope(&cancel, suspender);
    try {
      kernel();
    } catch (const Cancelled&) {
      raise_cancelled();
    }
  }

 private:
  [[noreturn]] void raise_cancelled();
  void suspend_if_due();
  void count_poll();
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

// Applies an op: checks, infers, and runs or records it. Every op goes through this function. Inputs are flattened in
// the order of the row, and the elements of a list follow each other (all lists of an op have the same length). Absent
// optional inputs are undefined Values. An exception leaves the inputs unchanged. Work that is queued on a device may
// fail after the call: see LateError in tensor/device_table.h.
Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs);

// Runs the op's kernel, or its decomposition, without recording. Used by interpreters.
Interpreter& eager_interpreter();

// Infers only the types, as apply does. Throws the op's errors.
void infer_types(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, SmallVector<Type, 2>& out);

// Returns the dtype in which a pointwise op computes on these inputs (before a comparison returns bool).
DType pointwise_compute_dtype(const OpDef& op, std::span<const Value> inputs);

// Values from numbers, and access to elements. All functions wait for the device.
Value make_array(const Type& type);  // with unspecified elements
Value make_filled(const Type& type, double number);
Value make_scalar(double number, DType dtype, Device device = {});
bool has_nan(const Value& value);                       // for a contiguous floating array on the CPU
double item(const Value& value);                        // returns the element of a one-element array
Value to_contiguous(Context& ctx, const Value& value);  // returns the value itself when it is contiguous
Value to_device(Context& ctx, const Value& value, Device device);

}  // namespace pg
