// Execution: runs the steps of a plan in a frame whose pointers are set. Private to graph/exec/.
#pragma once
#include <span>

#include "graph/exec/exec.h"
#include "graph/exec/frame.h"

namespace pg {

// Holds a frame for the duration of a run.
class FrameLease {
 public:
  explicit FrameLease(FramePool& pool) : pool_(pool), frame_(pool.take()) {}
  ~FrameLease() { pool_.give(std::move(frame_)); }
  FrameLease(const FrameLease&) = delete;
  Frame& operator*() const { return *frame_; }

 private:
  FramePool& pool_;
  std::unique_ptr<Frame> frame_;
};

// Returns the buffer of an array from outside that the storage shows unchanged in this run, or null if it shows none.
using SourceOf = FunctionRef<const Ref<Buffer>&(int32_t storage)>;

class Execution {
 public:
  Execution(const Plan& plan, Context& ctx, Frame& frame, SourceOf source)
      : plan_(plan), ctx_(ctx), frame_(frame), source_(source) {}

  // Sets the states of the generators that random steps use.
  void bind_generators(std::span<const RandomKey> states);
  void refresh_packs();
  // Returns the buffer of an input or constant whose packed form a step may keep, or null.
  const Ref<Buffer>& source_of_view(int32_t view) const;

  // Runs all steps, or those from `at` to `end`. Errors of kernels get the script's line.
  void operator()() { run(0, plan_.steps.size()); }
  void run(size_t at, size_t end);
  // Later steps do not check for interrupts.
  void finish_uninterrupted() { interruptible_ = false; }
  // The same with segments as programs of their device. No segment crosses `at` or `end`.
  void run_captured(size_t at, size_t end);

 private:
  void* queue_of(Device device) const { return stream_ ? stream_ : stream_of(device); }
  void write_number(Device device, void* to, int64_t number) const;
  void run_segment(const Segment& segment, SegmentProgram& program);
  bool find_changed(const Segment& segment, const std::vector<char*>& before, std::vector<int32_t>& changed) const;
  bool touches_changed(const Step& step, const std::vector<char*>& before) const;
  void capture(CapturedWork& work, const Segment& segment, int32_t step);
  void run_step(const Step& step);
  void run_steps(const Step* first, size_t count);
  void run_in_job(const Step& step);
  void run_kernel(const Step& step);
  void run_control(const Step& step);  // graph/exec/control.cpp
  void run_branch(const Step& step);
  void run_loop(const Step& step);
  void record_branch(const Step& step);  // graph/exec/record.cpp
  void record_loop(const Step& step);
  void run_watched(const Step& step);
  void run_observed(const Step& step);
  void check_anomaly(const Step& step) const;
  [[noreturn]] void raise_positioned(const Step& step, const Error& error) const;
  const void* packed_of(const Step& step) const {
    return step.pack < 0 ? nullptr : frame_.packs[size_t(step.pack)].data();
  }
  const View& in(const Step& step, size_t i) const { return frame_.views[size_t(step.in) + i]; }
  const View& out(const Step& step, size_t i) const { return frame_.views[size_t(step.out) + i]; }

  Ref<Buffer>* stack_of(int32_t view) const;
  void show_stack(int32_t view) const;

  friend class BodyRun;
  friend class LoopRun;
  const Plan& plan_;
  Context& ctx_;
  Frame& frame_;
  SourceOf source_;
  std::span<const RandomKey> states_;
  bool interruptible_ = true;
  void* stream_ = nullptr;          // the stream that steps use while a program is captured
  Recording* recording_ = nullptr;  // of a step of that program that has conditions
};

}  // namespace pg
