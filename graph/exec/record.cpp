// Branches and loops that a device decides by itself, as parts of its programs. What the host would do at each step is
// work of the device: the memory of a body is the same in all steps, and rows and carries are copied to and from it.
#include "graph/exec/body_run.h"
#include "tensor/device_table.h"

namespace pg {

void Execution::record_branch(const Step& step) {
  for (const size_t taken : {0, 1}) {
    recording_->nest(taken == 0 ? When::kIf : When::kUnless, in(step, 0).data, [&] {
      BodyRun body(*this, step, taken, 1, 0);
      for (size_t k = 1; k < size_t(step.in_count); ++k) body.bind_input(k - 1, in(step, k).data);
      for (size_t k = 0; k < size_t(step.out_count); ++k) body.bind_output(k, out(step, k).data);
      body(taken + 1);
    });
  }
}

namespace {

// What each step copies: a row, or a carry.
struct StepCopy {
  void* to;
  const void* from;
  size_t bytes;
};

}  // namespace

void Execution::record_loop(const Step& step) {
  const ControlStep& control = *step.control;
  const LoopForm& form = control.loop;
  const size_t flag = form.conditional, slices = size_t(form.slices), carries = size_t(form.carries);
  const size_t first = size_t(form.first_slice(false)), captures = 1 + slices + carries;
  BodyRun body(*this, step, 0, first + slices + carries, captures);
  const Device device = body.input(0).device;
  const DeviceTable& table = device_table(device);
  const auto copy = [&](const StepCopy& c) {
    if (c.to != c.from && c.bytes > 0) table.copy(device.index, stream_, c.to, c.from, c.bytes);
  };

  LoopState loop = {};
  loop.steps = static_cast<int64_t*>(out(step, 0).data);
  loop.number = reinterpret_cast<int64_t*>(body.scratch(control.index));
  loop.more = reinterpret_cast<bool*>(body.scratch(control.more));
  loop.count = form.counted ? static_cast<const int64_t*>(in(step, 0).data) : nullptr;
  loop.flag = form.conditional ? static_cast<const bool*>(in(step, first - 1).data) : nullptr;
  loop.limit = form.limit;
  loop.reverse = form.reverse;
  table.next_step(device.index, stream_, loop, true);

  body.bind_input(0, loop.number);
  if (form.conditional) body.bind_output(0, body.scratch(control.flag));
  std::vector<StepCopy> read, carried, before, written;
  for (size_t k = 0; k < slices; ++k) {
    read.push_back({body.scratch(control.rows[k]), in(step, first + k).data, body.input(1 + k).bytes.count()});
    body.bind_input(1 + k, read[k].to);
  }
  for (size_t k = 0; k < carries; ++k) {
    const size_t input = 1 + slices + k, bytes = body.input(input).bytes.count();
    void* const now = out(step, 1 + k).data;
    void* const next = body.donates(flag + k, input) ? now : body.scratch(control.slots[k]);
    copy({now, in(step, first + slices + k).data, bytes});
    body.bind_input(input, now);
    body.bind_output(flag + k, next);
    carried.push_back({now, next, bytes});
  }
  for (size_t k = first + slices + carries; k < size_t(step.in_count); ++k)
    body.bind_input(k - first + 1, in(step, k).data);
  for (size_t k = 1 + carries; k < size_t(step.out_count); ++k) {
    const size_t output = flag + k - 1, bytes = body.output(output).bytes.count();
    const PlanOutput& place = body.plan().outputs[output];
    void* const to = out(step, k).data;
    if (place.before >= 0) {
      before.push_back({to, carried[size_t(place.before) - flag].to, bytes});
    } else if (place.same_as >= 0) {
      written.push_back({to, carried[size_t(place.same_as) - flag].from, bytes});
    } else {
      written.push_back({to, body.scratch(control.rows[slices + k - 1 - carries]), bytes});
      body.bind_output(output, const_cast<void*>(written.back().from));
    }
    if (bytes > 0 && (form.counted || form.conditional))
      table.clear(device.index, stream_, to, size_t(form.limit) * bytes);
  }

  for (auto* list : {&read, &before, &written}) std::erase_if(*list, [](const StepCopy& c) { return c.bytes == 0; });
  const auto write = [&](const StepCopy& c) {
    table.write_row(device.index, stream_, c.to, c.from, c.bytes, loop.number);
  };
  recording_->nest(When::kWhile, loop.more, [&] {
    for (const StepCopy& c : read) table.read_row(device.index, stream_, c.to, c.from, c.bytes, loop.number);
    for (const StepCopy& c : before) write(c);
    body(1);
    for (const StepCopy& c : carried) copy(c);
    for (const StepCopy& c : written) write(c);
    if (form.conditional) loop.flag = reinterpret_cast<const bool*>(body.scratch(control.flag));
    table.next_step(device.index, stream_, loop, false);
  });
}

}  // namespace pg
