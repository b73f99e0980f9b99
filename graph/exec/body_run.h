// Runs one body of a branch or loop in a frame. Private to graph/exec/.
#pragma once
#include <algorithm>

#include "graph/exec/run.h"

namespace pg {

// The state of a generator in a step of a branch or loop.
RandomKey body_state(const RandomKey& outer, const BodyStream& s, uint64_t step);

class BodyRun {
 public:
  // `operand`: the view of the step that becomes input `first` of the body. The views after it become the inputs after
  // that, which stay the same in all steps of a loop.
  BodyRun(const Execution& outer, const Step& step, size_t body, size_t operand, size_t first)
      : outer_(outer),
        control_(*step.control),
        step_(step),
        plan_(*control_.bodies[body]),
        operand_(operand),
        first_(first),
        lease_(*plan_.frames),
        frame_(*lease_),
        source_([this](int32_t input) -> const Ref<Buffer>& { return source_of(input); }),
        run_(plan_, outer.ctx_, frame_, source_) {
    run_.stream_ = outer.stream_;
    run_.recording_ = outer.recording_;
    SmallVector<char*, 2> arenas;
    for (const ScratchPlace& place : control_.arenas[body]) arenas.push_back(scratch(place));
    plan_.frames->place_arenas(frame_, arenas);
    if (!plan_.random.empty() || !plan_.controls.empty()) states_.resize(outer.states_.size());
  }

  char* scratch(const ScratchPlace& place) const {
    return static_cast<char*>(outer_.frame_.views[size_t(step_.scratch + place.block)].data) + place.offset;
  }
  void bind_input(size_t k, const void* data) {
    plan_.frames->patch(frame_, int32_t(k), static_cast<char*>(const_cast<void*>(data)));
  }
  void bind_output(size_t k, void* data) {
    plan_.frames->patch(frame_, plan_.outputs[k].storage, static_cast<char*>(data));
  }
  const Storage& output(size_t k) const { return plan_.storages[size_t(plan_.outputs[k].storage)]; }
  const Storage& input(size_t k) const { return plan_.storages[k]; }
  // Whether anything shows the memory of an input.
  bool reads_input(int32_t k) const {
    return std::any_of(plan_.slots.begin(), plan_.slots.end(), [&](const Slot& s) { return s.storage == k; }) ||
           std::any_of(plan_.outputs.begin(), plan_.outputs.end(), [&](const PlanOutput& o) { return o.storage == k; });
  }
  // Whether the body writes output k over input `input`.
  bool donates(size_t k, size_t input) const { return output(k).donor == int32_t(input); }
  // `repeats`: the body runs often enough to pack what it cannot keep packed.
  void refresh_packs(bool repeats) {
    for (size_t i = 0; i < plan_.packs.size(); ++i) {
      const int32_t storage = plan_.slots[size_t(plan_.packs[i].view)].storage;
      const Ref<Buffer>& source = run_.source_of_view(plan_.packs[i].view);
      const bool stays = plan_.storages[size_t(storage)].kind == Storage::kInput && size_t(storage) >= first_;
      if (!source && stays && repeats)
        plan_.frames->pack_once(frame_, i);
      else
        plan_.frames->refresh_pack(frame_, i, source);
    }
  }
  const Plan& plan() const { return plan_; }
  std::span<const View> views(int32_t first, int32_t count) const {
    return {frame_.views.data() + first, size_t(count)};
  }

  void operator()(uint64_t step) {
    if (!states_.empty()) {
      for (const BodyStream& s : control_.streams)
        if (s.generator < states_.size()) states_[s.generator] = body_state(outer_.states_[s.generator], s, step);
      run_.bind_generators(states_);
    }
    run_();
  }

 private:
  const Ref<Buffer>& source_of(int32_t input) const {
    static const Ref<Buffer> none;
    if (size_t(input) < first_) return none;
    return outer_.source_of_view(step_.in + int32_t(operand_ + size_t(input) - first_));
  }

  const Execution& outer_;
  const ControlStep& control_;
  const Step& step_;
  const Plan& plan_;
  const size_t operand_, first_;
  FrameLease lease_;
  Frame& frame_;
  std::function<const Ref<Buffer>&(int32_t)> source_;
  Execution run_;
  std::vector<RandomKey> states_;
};

}  // namespace pg
