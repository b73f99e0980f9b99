// Observers see the work of a context: the ops that it applies, the steps of programs, whole runs, backward, the
// collector. Profiles, pg.trace and the counts of net:summary are observers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/context.h"
#include "tensor/kernel.h"

namespace pg {

// A step of a program, by the number of its plan, which no other plan has, and its index there.
struct StepPlace {
  uint64_t plan = 0;
  size_t index = 0;
  std::string_view program, line;    // the name of the program; "file:line" of the script, or ""
  FunctionRef<std::string()> label;  // what it runs: "conv2d", "fused mul add"
};

// One piece of work, while it is in progress. Pieces nest.
struct Work {
  enum class Kind : uint8_t { kOp, kStep, kProgram, kBackward, kCompile, kCollector };
  Kind kind = Kind::kOp;
  std::string_view name = {};  // of the op or of the program; "" for a step
  const OpDef* op = nullptr;   // null for a fused step, a branch and a loop
  const Attrs* attrs = nullptr;
  std::span<const View> in = {}, out = {};  // `out` is empty until the end, and if the work failed
  std::span<const Value> values = {};       // of an op: the inputs. A number has no view
  const StepPlace* step = nullptr;
  bool is_view = false;  // the results share the memory of an input
  Work* outer = nullptr;

  // For the observer:
  int64_t start = 0, inner = 0;  // when it began; how long the work inside of it took
  const void* place = nullptr;
  int32_t line = -1;
};

class Observer {
 public:
  // reads_values: it reads elements, so that programs run node by node, with all operands intact.
  explicit Observer(bool reads_values = false) : reads_values(reads_values) {}
  virtual ~Observer() = default;
  virtual void begin(Work& work) noexcept = 0;
  virtual void end(Work& work) noexcept = 0;
  const bool reads_values;
};

// Shows a piece of work to the observer of the context, from the constructor to the destructor.
class Observed {
 public:
  Observed(Context& ctx, Work& work) : ctx_(ctx), work_(work), observer_(ctx.observer) {
    work.outer = std::exchange(ctx.work, &work);
    if (observer_) observer_->begin(work);
  }
  ~Observed() {
    ctx_.work = work_.outer;
    if (observer_ && observer_ == ctx_.observer) observer_->end(work_);
  }
  Observed(const Observed&) = delete;

 private:
  Context& ctx_;
  Work& work_;
  Observer* observer_;
};

// Returns f(), as one piece of work.
template <class F>
auto observed(Context& ctx, Work::Kind kind, std::string_view name, F&& f) {
  if (!ctx.observer) return f();
  Work work{.kind = kind, .name = name};
  const Observed scope(ctx, work);
  return f();
}

// Whether ops and programs must keep their operands, because an observer or anomaly mode reads them.
inline bool keeps_operands(const Context& ctx) {
  return ctx.detect_anomaly || (ctx.observer && ctx.observer->reads_values);
}

}  // namespace pg
