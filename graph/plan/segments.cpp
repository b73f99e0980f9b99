#include "graph/plan/segments.h"

#include <algorithm>

#include "tensor/device_table.h"
#include "tensor/op.h"

namespace pg {
namespace {

constexpr int32_t kLeastWork = 3;               // kernels of a program
constexpr Bytes kMostStaged = Bytes(1 << 20);   // of an input
constexpr Bytes kMostPinned = Bytes(64 << 20);  // of an input of a branch or loop, where patches cost more
constexpr int64_t kMostWork = 1024;             // kernels of a loop with its bodies as a program has them
constexpr int64_t kMostRuns = 1 << 17;          // kernels that a loop runs, which nobody can interrupt
constexpr int64_t kTooMany = int64_t(1) << 40;

int64_t bounded(int64_t count) { return std::min(count, kTooMany); }

// The number of kernels that a program has for the steps, or, if `runs`, that it runs. Loops without a limit count as
// too many.
int64_t kernels(const Step& step, bool runs);
int64_t kernels(const Plan& plan, bool runs) {
  int64_t count = 0;
  for (const Step& step : plan.steps) count = bounded(count + kernels(step, runs));
  return count;
}
int64_t kernels(const ControlStep& control, bool runs) {
  int64_t count = 1;
  for (const auto& body : control.bodies) count = bounded(count + kernels(*body, runs));
  if (!control.is_loop) return count + 1;
  if (control.repeats) count += int64_t(control.rows.size() + control.slots.size()) + 2;
  if (control.repeats && !runs) return count;
  const int64_t limit = control.loop.limit;
  return limit < 0 || limit > kTooMany / count ? kTooMany : limit * count;
}
int64_t kernels(const Step& step, bool runs) { return step.control ? kernels(*step.control, runs) : 1; }

const Storage* storage_of(const Plan& plan, int32_t view) {
  const int32_t storage = plan.slots[size_t(view)].storage;
  return storage < 0 ? nullptr : &plan.storages[size_t(storage)];
}

// Whether any of the views has such a storage.
template <class F>
bool any_storage(const Plan& plan, int32_t first, int32_t count, F f) {
  for (int32_t i = first; i < first + count; ++i)
    if (const Storage* s = storage_of(plan, i); s && f(*s)) return true;
  return false;
}

bool takes_all(const Plan& plan, Device device);
bool varies(const Plan& plan, const Step& step);

// Whether the step only queues work of the device, the same at each run but for addresses and Step::varies.
bool takes(const Plan& plan, const Step& step, Device device) {
  const auto outside = [&](const Storage& s) { return !(s.device == device) && !host_reads(s.device); };
  const auto elsewhere = [&](const Storage& s) { return !(s.device == device); };
  if (any_storage(plan, step.in, step.in_count, outside) || any_storage(plan, step.out, step.out_count, elsewhere))
    return false;
  if (!step.control) return step.device == device && (step.fused || only_queues(*step.op, step.device));
  const ControlStep& control = *step.control;
  if (any_storage(plan, step.in, step.in_count, elsewhere)) return false;
  if (kernels(control, false) > kMostWork || kernels(control, true) > kMostRuns) return false;
  if (varies(plan, step)) return false;  // conditions are not patched, and to patch loops takes longer than to run them
  if (!control.is_loop && !(control.nests && plan.views[size_t(step.in)].dtype() == DType::kBool)) return false;
  if (control.is_loop && !control.repeats) {
    const KernelRow fill = registry().kernel(op_named<"full">(), device);
    if (control.loop.counted || control.loop.conditional || !fill.fn || !only_queues(op_named<"full">(), device))
      return false;
  }
  const auto grows = [](const Storage& s) { return s.kind == Storage::kStack; };
  return !any_storage(plan, step.out, step.out_count, grows) &&
         std::all_of(control.bodies.begin(), control.bodies.end(),
                     [&](const auto& b) { return takes_all(*b, device); });
}

bool takes_all(const Plan& plan, Device device) {
  return plan.packs.empty() &&
         std::all_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) { return takes(plan, s, device); });
}

// Whether runs differ in random numbers.
bool draws(const OpDef& op, const Attrs& attrs) { return !op.draws || op.draws(AttrReader(op, attrs)); }

// Whether a step reads what is not in the memory of the device: the key of a generator, or a number of the host that
// may change.
bool varies(const Plan& plan, const Step& step) {
  if (step.random >= 0 && draws(*step.op, *step.attrs)) return true;
  if (step.control) {
    const auto any = [](const auto& body) {
      return std::any_of(body->steps.begin(), body->steps.end(), [&](const Step& s) { return varies(*body, s); });
    };
    return std::any_of(step.control->bodies.begin(), step.control->bodies.end(), any);
  }
  return any_storage(plan, step.in, step.in_count, [](const Storage& s) {
    return host_reads(s.device) && s.kind != Storage::kImmediate && s.kind != Storage::kConstant;
  });
}

// Whether a segment should have no other step: it could rarely be launched, since each run may bring other memory.
bool isolated(const Plan& plan, const Step& step) {
  const auto large = [](const Storage& s) { return s.kind == Storage::kInput && s.bytes > kMostPinned; };
  return step.control && any_storage(plan, step.in, step.in_count, large);
}

// Inputs that segments read and no step writes.
void find_staged(Plan& plan) {
  for (const Segment& segment : plan.segments)
    for (int32_t s = segment.begin; s < segment.end; ++s) {
      const Step& step = plan.steps[size_t(s)];
      for (int32_t i = step.in; i < step.in + step.in_count; ++i) {
        const Storage* storage = storage_of(plan, i);
        if (!storage || storage->kind != Storage::kInput || !(storage->device == segment.device)) continue;
        if (storage->bytes == Bytes() || storage->bytes > (step.control ? kMostPinned : kMostStaged)) continue;
        plan.staged.resize(plan.input_types.size());
        plan.staged[size_t(storage->index)] = true;
      }
    }
  for (const Storage& s : plan.storages)
    if (s.donor >= 0 && !plan.staged.empty()) plan.staged[size_t(s.donor)] = false;
}

}  // namespace

void choose_form(ControlStep& control) {
  for (const auto& body : control.bodies)
    for (const Step& step : body->steps) control.nests |= step.control && step.control->nests;
  const Plan& body = *control.bodies[0];
  const LoopForm& form = control.loop;
  if (!control.is_loop) {
    control.nests |= !body.outputs.empty() && has_conditions(body.outputs[0].layout->type.device);
  } else if (form.limit >= 0 && has_conditions(body.input_types[0].device)) {
    control.repeats = form.counted || form.conditional || kernels(control, false) > kMostWork;
    control.nests |= control.repeats;
  }
}

void find_segments(Plan& plan) {
  if (plan.options.body) return;
  const auto count = int32_t(plan.steps.size());
  for (int32_t begin = 0; begin < count;) {
    const Step& first = plan.steps[size_t(begin)];
    const bool loop = first.control && first.out_count > 0;
    const Device device = loop ? plan.views[size_t(first.out)].type->device : first.device;
    int32_t end = begin, work = 0;
    while (captures(device) && end < count && takes(plan, plan.steps[size_t(end)], device)) {
      Step& step = plan.steps[size_t(end)];
      step.varies = varies(plan, step);
      work += step.work = int32_t(kernels(step, false));
      if (++end == plan.invariant) break;
      if (isolated(plan, step) || (end < count && isolated(plan, plan.steps[size_t(end)]))) break;
    }
    if (work >= kLeastWork) plan.segments.push_back({begin, end, device});
    // Memory is lent before a program. What fails while the program runs is reported too late to leave it anyway.
    if (work >= kLeastWork && begin < plan.lend && plan.lend < end) plan.lend = begin;
    begin = std::max(end, begin + 1);
  }
  find_staged(plan);
}

}  // namespace pg
