// Runs the segments of a plan as programs of their device.
#include "graph/exec/run.h"
#include "tensor/runtime.h"

namespace pg {

// A segment becomes a program in the second run. Later runs patch the steps whose memory has moved, and launch it. The
// device is faster at single steps where most would have to be patched.
void Execution::run_captured(size_t at, size_t end) {
  frame_.programs.resize(plan_.segments.size());
  for (size_t k = 0; k < plan_.segments.size(); ++k) {
    const Segment& segment = plan_.segments[k];
    if (size_t(segment.begin) < at || size_t(segment.end) > end) continue;
    run(at, size_t(segment.begin));
    run_segment(segment, frame_.programs[k]);
    at = size_t(segment.end);
  }
  run(at, end);
}

void Execution::run_segment(const Segment& segment, SegmentProgram& program) {
  std::vector<int32_t> changed;
  if (program.refused) return run(size_t(segment.begin), size_t(segment.end));
  if (program.work && find_changed(segment, program.bases, changed)) {
    std::unique_ptr<CapturedWork> work = std::move(program.work);  // lost if it can be patched only in part
    for (const int32_t step : changed) capture(*work, segment, step);
    program.work = std::move(work);
  } else if (!program.last.empty() && find_changed(segment, program.last, changed)) {
    program.work = nullptr;
    auto work = std::make_unique<CapturedWork>(segment.device);
    for (int32_t step = segment.begin; step < segment.end; ++step) capture(*work, segment, step);
    program.work = std::move(work);
  } else {
    program.last = frame_.bases;
    return run(size_t(segment.begin), size_t(segment.end));
  }
  program.bases = program.last = frame_.bases;
  if (program.work->launch()) return;
  program.work = nullptr;
  program.refused = true;
  const std::string text = name_of(segment.device) + ": the driver refused a program with conditions; the host decides";
  ctx_.runtime->log(LogLevel::kWarning, text.c_str());
  run(size_t(segment.begin), size_t(segment.end));
}

// Finds the steps that a program has to be patched for. Returns whether they are few and have no conditions.
bool Execution::find_changed(const Segment& segment, const std::vector<char*>& before,
                             std::vector<int32_t>& changed) const {
  constexpr int64_t kPatch = 3;  // a kernel that is patched takes the host about the time of so many that are launched
  changed.clear();
  int64_t all = 0, patched = 0;
  const bool same = before == frame_.bases;
  for (int32_t i = segment.begin; i < segment.end; ++i) {
    const Step& step = plan_.steps[size_t(i)];
    all += step.work;
    if (!step.varies && (same || !touches_changed(step, before))) continue;
    if (step.control && step.control->nests) return false;
    changed.push_back(i);
    patched += step.work;
  }
  return kPatch * patched <= all;
}

bool Execution::touches_changed(const Step& step, const std::vector<char*>& before) const {
  const auto moved = [&](int32_t first, int32_t count) {
    for (int32_t i = first; i < first + count; ++i) {
      const int32_t storage = plan_.slots[size_t(i)].storage;
      if (storage >= 0 && before[size_t(storage)] != frame_.bases[size_t(storage)]) return true;
    }
    return false;
  };
  return moved(step.in, step.in_count) || moved(step.out, step.out_count) || moved(step.scratch, step.scratch_count);
}

void Execution::capture(CapturedWork& work, const Segment& segment, int32_t step) {
  const ControlStep* const control = plan_.steps[size_t(step)].control;
  const bool nests = control && control->nests;
  const auto queue = [&](Recording& recording) {
    stream_ = recording.stream();
    recording_ = nests ? &recording : nullptr;
    run(size_t(step), size_t(step) + 1);
  };
  try {
    work.capture(size_t(step - segment.begin), queue, nests);
  } catch (...) {
    stream_ = nullptr, recording_ = nullptr;
    throw;
  }
  stream_ = nullptr, recording_ = nullptr;
}

}  // namespace pg
