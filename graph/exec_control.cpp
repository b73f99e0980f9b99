// Branches and loops of plans. A body runs in a frame of its own whose memory is the scratch memory of its step; from step to
// step of a loop only pointers move.
#include <cstring>

#include "graph/exec_run.h"
#include "tensor/context.h"

namespace pg {

RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step) {
  auto mix = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  return {mix(mix(mix(state.seed) ^ (state.tick + tick)) ^ step), 0};
}

// One body in a frame.
class BodyRun {
 public:
  // operand: the view of the step that is the body's input `first`; those after it follow.
  BodyRun(const Execution& outer, const Step& step, size_t body, size_t operand, size_t first)
      : outer_(outer), control_(*step.control), step_(step), plan_(*control_.bodies[body]), operand_(operand), first_(first),
        lease_(*plan_.frames), frame_(*lease_), source_([this](int32_t input) -> const Ref<Buffer>& { return source_of(input); }),
        run_(plan_, outer.ctx_, frame_, source_) {
    plan_.frames->place_arenas(frame_, scratch() + control_.arena);
    if (!plan_.random.empty() || !plan_.controls.empty()) states_.resize(outer.states_.size());
  }

  char* scratch() const { return static_cast<char*>(outer_.frame_.views[size_t(step_.scratch)].data); }
  void bind_input(size_t k, const void* data) { plan_.frames->patch(frame_, int32_t(k), static_cast<char*>(const_cast<void*>(data))); }
  void bind_output(size_t k, void* data) { plan_.frames->patch(frame_, plan_.outputs[k].storage, static_cast<char*>(data)); }
  size_t output_bytes(size_t k) const { return plan_.storages[size_t(plan_.outputs[k].storage)].bytes; }
  size_t input_bytes(size_t k) const { return plan_.storages[k].bytes; }
  // Whether the body writes output k over input `input`.
  bool donates(size_t k, size_t input) const { return plan_.storages[size_t(plan_.outputs[k].storage)].donor == int32_t(input); }
  void refresh_packs() { run_.refresh_packs(); }

  void operator()(uint64_t step) {
    if (!states_.empty()) {
      for (const BodyStream& s : control_.streams)
        if (s.generator < states_.size()) states_[s.generator] = body_stream(outer_.states_[s.generator], s.tick, step);
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

void Execution::run_control(const Step& step) {
  ctx_.poll();
  if (step.control->kind == NodeKind::kCond) run_branch(step);
  else run_loop(step);
}

namespace {

bool is_true(const View& pred) {
  return visit_dtype(pred.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return double(*pred.as<const T>()) != 0;
  });
}

}  // namespace

void Execution::run_branch(const Step& step) {
  const size_t taken = is_true(in(step, 0)) ? 0 : 1;
  BodyRun body(*this, step, taken, 1, 0);
  for (size_t k = 1; k < size_t(step.in_count); ++k) body.bind_input(k - 1, in(step, k).data);
  for (size_t k = 0; k < size_t(step.out_count); ++k) body.bind_output(k, out(step, k).data);
  body.refresh_packs();
  body(taken + 1);
}

namespace {

// A stacked output: fixed rows in memory of the plan, or a buffer that grows.
class RowWriter {
 public:
  RowWriter(const View& whole, size_t row_bytes, Ref<Buffer>* stack) : base_(static_cast<char*>(whole.data)), bytes_(row_bytes), stack_(stack) {}
  char* row(int64_t i) {
    if (stack_) reserve(size_t(i) + 1);
    return base_ + size_t(i) * bytes_;
  }
  void clear_from(int64_t first, int64_t rows) {
    if (!stack_ && rows > first) std::memset(base_ + size_t(first) * bytes_, 0, size_t(rows - first) * bytes_);
  }

 private:
  void reserve(size_t rows) {
    const size_t has = *stack_ ? (*stack_)->bytes : 0;
    if (rows * bytes_ > has || !*stack_) {
      Ref<Buffer> larger = Buffer::allocate(Device{}, std::max({rows * bytes_, 2 * has, size_t(4096)}));
      if (*stack_) std::memcpy(larger->data, (*stack_)->data, has);
      *stack_ = std::move(larger);
    }
    base_ = static_cast<char*>((*stack_)->data);
  }

  char* base_;
  size_t bytes_;
  Ref<Buffer>* stack_;
};

}  // namespace

void Execution::run_loop(const Step& step) {
  const ControlStep& control = *step.control;
  const LoopForm& form = control.loop;
  const size_t slices = size_t(form.slices), carries = size_t(form.carries), flag = form.conditional, first = size_t(form.first_slice(false));
  const size_t stacks = size_t(step.out_count) - 1 - carries;
  BodyRun body(*this, step, 0, first, 1);
  int64_t most = form.limit >= 0 ? form.limit : std::numeric_limits<int64_t>::max();
  bool fixed = !form.conditional && (form.limit >= 0 || form.counted);
  if (form.counted) {
    const int64_t count = *in(step, 0).as<const int64_t>();
    if (count < 0) throw Error(fmt::format("{}: bad argument 'count' (expected a whole number >= 0, got {})", control.name, count));
    most = std::min(most, count);
  }
  bool more = !form.conditional || is_true(in(step, first - 1));
  int64_t& index = *reinterpret_cast<int64_t*>(body.scratch() + control.index);
  bool& go_on = *reinterpret_cast<bool*>(body.scratch() + control.flag);
  body.bind_input(0, &index);
  if (flag) body.bind_output(0, &go_on);
  for (size_t k = first + slices + carries; k < size_t(step.in_count); ++k) body.bind_input(k - first + 1, in(step, k).data);

  struct Carry {
    const char* now;
    char *result, *other;  // places
    bool in_place;
  };
  SmallVector<Carry, 4> states;
  for (size_t k = 0; k < carries; ++k) {
    char* result = static_cast<char*>(out(step, 1 + k).data);
    const char* before = static_cast<const char*>(in(step, first + slices + k).data);
    const bool in_place = body.donates(flag + k, 1 + slices + k);
    if (in_place && result != before) std::memcpy(result, before, body.input_bytes(1 + slices + k));
    states.push_back({in_place ? result : before, result, body.scratch() + control.slots[k], in_place});
  }
  std::vector<RowWriter> rows;
  for (size_t k = 0; k < stacks; ++k) {
    const Storage& storage = plan_.storages[size_t(plan_.slots[size_t(step.out) + 1 + carries + k].storage)];
    Ref<Buffer>* stack = storage.kind == Storage::kStack ? &frame_.stacks[size_t(storage.index)] : nullptr;
    rows.emplace_back(out(step, 1 + carries + k), body.output_bytes(flag + carries + k), stack);
  }
  body.refresh_packs();

  int64_t n = 0;
  for (; n < most && more; ++n) {
    ctx_.poll();
    const int64_t row = form.reverse ? most - 1 - n : n;
    index = row + 1;
    for (size_t k = 0; k < slices; ++k)
      body.bind_input(1 + k, static_cast<const char*>(in(step, first + k).data) + size_t(row) * body.input_bytes(1 + k));
    for (size_t k = 0; k < carries; ++k) {
      Carry& c = states[k];
      body.bind_input(1 + slices + k, c.now);
      // The last of a known number of steps writes the result; else the places take turns.
      const bool to_result = c.in_place || (fixed ? (most - 1 - n) % 2 == 0 : c.now != c.result);
      body.bind_output(flag + k, to_result ? c.result : c.other);
      c.now = to_result ? c.result : c.other;
    }
    for (size_t k = 0; k < stacks; ++k) body.bind_output(flag + carries + k, rows[k].row(row));
    body(uint64_t(index));
    if (flag) more = go_on;
  }
  for (size_t k = 0; k < carries; ++k)
    if (states[k].now != states[k].result) std::memcpy(states[k].result, states[k].now, body.input_bytes(1 + slices + k));
  for (RowWriter& r : rows) r.clear_from(form.reverse ? most : n, form.limit);
  *out(step, 0).as<int64_t>() = n;
  for (size_t k = 0; k < stacks; ++k) {
    const int32_t storage = plan_.slots[size_t(step.out) + 1 + carries + k].storage;
    const Storage& s = plan_.storages[size_t(storage)];
    if (s.kind == Storage::kStack && frame_.stacks[size_t(s.index)]) plan_.frames->patch(frame_, storage, static_cast<char*>(frame_.stacks[size_t(s.index)]->data));
  }
}

}  // namespace pg
