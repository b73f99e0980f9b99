#include "graph/exec/run.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>

#include "graph/plan/fused.h"
#include "tensor/anomaly.h"
#include "tensor/device_table.h"
#include "tensor/observer.h"
#include "tensor/runtime.h"

namespace pg {

void Execution::bind_generators(std::span<const RandomKey> states) {
  states_ = states;
  for (size_t i = 0; i < plan_.random.size(); ++i) {
    const RandomStep& r = plan_.random[i];
    if (r.generator >= states.size()) throw Error("plan: a random op names a generator that the run does not have");
    const RandomKey& state = states[r.generator];
    const OpDef& op = *plan_.steps[size_t(r.step)].op;
    frame_.attrs[i][size_t(op.random_attr)] = RandomKey{state.seed, state.tick + r.tick};
  }
}

void Execution::refresh_packs() {
  for (size_t i = 0; i < plan_.packs.size(); ++i)
    plan_.frames->refresh_pack(frame_, i, source_of_view(plan_.packs[i].view));
}

const Ref<Buffer>& Execution::source_of_view(int32_t view) const {
  static const Ref<Buffer> none;
  const int32_t storage = plan_.slots[size_t(view)].storage;
  const Storage& s = plan_.storages[size_t(storage)];
  if (s.kind == Storage::kConstant) return plan_.constants[size_t(s.index)].array().buffer;
  if (s.kind == Storage::kKept && frame_.kept_before) return frame_.kept->values[size_t(s.index)];
  return s.kind == Storage::kInput ? source_(storage) : none;
}

void Execution::run(size_t at, size_t end) {
  try {
    if (ctx_.detect_anomaly || ctx_.observer)
      for (; at < end; ++at) run_watched(plan_.steps[at]);
    else
      for (size_t count = 0; at < end; at += count) {
        count = std::min(size_t(plan_.steps[at].at_once), end - at);
        if (count == 1)
          run_step(plan_.steps[at]);
        else
          run_steps(&plan_.steps[at], count);
      }
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const PositionedError&) {
    throw;
  } catch (const Error& error) {
    raise_positioned(plan_.steps[at], error);
  }
}

void Execution::run_watched(const Step& step) {
  if (ctx_.observer)
    run_observed(step);
  else
    run_step(step);
  if (ctx_.detect_anomaly) check_anomaly(step);
}

void Execution::run_observed(const Step& step) {
  const auto label = [&] { return label_of(step); };
  StepPlace place{plan_.serial, size_t(&step - plan_.steps.data()), plan_.options.name, {}, label};
  if (step.line >= 0) place.line = plan_.lines[size_t(step.line)];
  const View* views = frame_.views.data();
  Work work{.kind = Work::Kind::kStep, .in = {views + step.in, size_t(step.in_count)}, .step = &place};
  if (!step.control && !step.fused) {
    work.op = step.op;
    work.attrs = step.random < 0 ? step.attrs : &frame_.attrs[size_t(step.random)];
  }
  const Observed scope(ctx_, work);
  run_step(step);
  work.out = {views + step.out, size_t(step.out_count)};
}

// Follows the longest runs of late. One that other work of the machine has made long counts little.
static void note_time(int64_t& took, int64_t now) {
  if (took > 0) now = std::min(now, 3 * took);
  took += (now - took) / (took == 0 ? 1 : now > took ? 2 : 16);
}

// A job may stop before each step, also in the commit section: it lends no memory that others see.
void Execution::run_in_job(const Step& step) {
  if (step.control) return run_control(step);
  if (frame_.took.empty()) frame_.took.resize(plan_.steps.size());
  int64_t& took = frame_.took[size_t(&step - plan_.steps.data())];
  ctx_.suspender->expect(took);
  ctx_.poll();
  const int64_t start = Suspender::now();
  const uint64_t suspensions = ctx_.suspensions;
  ctx_.cancellable([&] { run_kernel(step); });
  if (ctx_.suspensions == suspensions) note_time(took, Suspender::now() - start);
}

void Execution::run_step(const Step& step) {
  if (ctx_.suspender && interruptible_ && !stream_) return run_in_job(step);
  const bool poll = step.poll && interruptible_;
  if (poll) ctx_.poll();
  if (step.control) return run_control(step);
  if (poll && &step < plan_.steps.data() + plan_.commit) return ctx_.cancellable([&] { run_kernel(step); });
  run_kernel(step);
}

// Runs fused steps at once, but one after the other in a job, which may stop before each.
void Execution::run_steps(const Step* first, size_t count) {
  if (ctx_.suspender && interruptible_ && !stream_) {
    for (size_t i = 0; i < count; ++i) run_step(first[i]);
    return;
  }
  SmallVector<TileCall, 16> calls;
  bool poll = false;
  const View* views = frame_.views.data();
  for (const Step* s = first; s < first + count; ++s) {
    poll |= s->poll;
    calls.push_back(s->fused->call({views + s->in, size_t(s->in_count)}, {views + s->out, size_t(s->out_count)}));
  }
  poll &= interruptible_;
  if (poll) ctx_.poll();
  const auto run = [&] { calls[0].kernel->run_all(calls, queue_of(first->device)); };
  if (poll && first + count <= plan_.steps.data() + plan_.commit) return ctx_.cancellable(run);
  run();
}

void Execution::run_kernel(const Step& step) {
  const View* views = frame_.views.data();
  const std::span<const View> in{views + step.in, size_t(step.in_count)}, out{views + step.out, size_t(step.out_count)};
  if (step.fused) return step.fused->run(in, out, queue_of(step.device));
  if (step.prepared)
    return step.prepared->run(in, out, step.scratch < 0 ? nullptr : views[step.scratch].data, packed_of(step));
  const Attrs& attrs = step.random < 0 ? *step.attrs : frame_.attrs[size_t(step.random)];
  auto no_allocation = [](int, const Dims&) -> View { return {}; };
  step.kernel(KernelArgs{*step.op, in, out, attrs, no_allocation, queue_of(step.device), step.place});
}

void Execution::check_anomaly(const Step& step) const {
  if (step.control) return;
  for (int32_t i = step.out; i < step.out + step.out_count; ++i) {
    const View& v = frame_.views[size_t(i)];
    if (!v || !has_nan(v)) continue;
    const View* views = frame_.views.data();
    raise_anomaly(*step.op, {}, {views + step.in, size_t(step.in_count)}, {views + step.out, size_t(step.out_count)});
  }
}

void Execution::raise_positioned(const Step& step, const Error& error) const {
  if (step.line < 0) throw Error(error.what());
  const std::string& line = plan_.lines[size_t(step.line)];
  const std::string text = error_at(line, error.what());
  if (position_of(line).empty()) throw Error(text);
  throw PositionedError(text);
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

namespace {

class Run {
 public:
  Run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators,
      const Spare* spare = nullptr, std::span<const Value> targets = {})
      : plan_(plan), ctx_(ctx), inputs_(inputs), generators_(generators), lease_(*plan.frames), frame_(*lease_) {
    if (!targets.empty() && fit(targets)) targets_ = targets;
    const bool lends = spare && size_t(plan.lend) < plan.steps.size() && !keeps_operands(ctx);
    spare_ = lends ? spare : nullptr;
    bind_inputs();
    if (plan_.block_bytes() > Bytes()) bind_block();
    bind_outputs();
    if (plan.invariant > 0) bind_kept();
  }

  void operator()(Values& out) {
    auto source = [this](int32_t input) -> const Ref<Buffer>& { return source_of(input); };
    Execution execution(plan_, ctx_, frame_, source);
    execution.refresh_packs();
    execution.bind_generators(generators_);
    if (spare_)
      run_and_borrow(execution);
    else
      run_part(execution, first_step(), plan_.steps.size());
    take_outputs(out);
  }

 private:
  size_t first_step() const { return frame_.kept_before ? size_t(plan_.invariant) : 0; }

  // Returns the buffer of an input, or null if the input was copied for this run, or if the host, this run or what
  // follows it may write into it.
  const Ref<Buffer>& source_of(int32_t input) const {
    static const Ref<Buffer> none;
    const Array& array = inputs_[size_t(input)].array();
    const auto& changing = plan_.options.changing;
    const bool stays = std::find(changing.begin(), changing.end(), input) == changing.end();
    return array.contiguous && !array.buffer->borrowed && stays && !writes_into(input) ? array.buffer : none;
  }

  bool writes_into(int32_t input) const {
    for (size_t i = 0; i < plan_.fresh.size(); ++i)
      if (plan_.storages[size_t(plan_.fresh[i].storage)].donor == input &&
          fresh_[i].array_ref() == inputs_[size_t(input)].array_ref())
        return true;
    return false;
  }

  // Must not fail: the inputs may have been rewritten.
  void take_outputs(Values& out) {
    if (made_) {
      for (int32_t input : plan_.sources) made_->sources.push_back(source_of(input));
      plan_.frames->kept_results().offer(made_);
    }
    for (const FreshOutput& f : plan_.fresh) {
      const int32_t donor = plan_.storages[size_t(f.storage)].donor;
      if (donor >= 0 && inputs_[size_t(donor)].array_ref() == fresh_[size_t(&f - plan_.fresh.data())].array_ref())
        inputs_[size_t(donor)] = Value();
    }
    out.reserve(plan_.outputs.size());
    for (const PlanOutput& o : plan_.outputs)
      out.push_back(o.same_as >= 0 ? out[size_t(o.same_as)] : alias(o, whole_of(plan_.storages[size_t(o.storage)])));
  }

  void bind_inputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Array* array = &inputs_[i].array();
      if (!array->contiguous) {
        copies_.push_back({i, to_contiguous(ctx_, inputs_[i].detached())});
        array = &copies_.back().value.array();
      }
      const bool staged = !plan_.staged.empty() && plan_.staged[i];
      plan_.frames->patch(frame_, int32_t(i), staged ? stage(i, *array) : static_cast<char*>(array->data()));
    }
  }

  void bind_block() {
    const auto& inputs = plan_.options.consumed.members;
    block_ =
        inputs.empty() ? Buffer::allocate(Device{}, plan_.block_bytes()) : inputs_[size_t(inputs[0])].array().buffer;
    plan_.frames->place_block(frame_, static_cast<char*>(block_->data));
  }

  // Finds the results of invariant steps that an earlier run has computed, or makes room for them. All steps run
  // where an observer or anomaly mode reads their results.
  void bind_kept() {
    FramePool& frames = *plan_.frames;
    auto newest = keeps_operands(ctx_) ? nullptr : frames.kept_results().newest();
    frame_.kept_before = newest && is_current(*newest);
    if (frame_.kept_before) {
      newest->runs.fetch_add(1, std::memory_order_relaxed);
      return frames.show_kept(frame_, std::move(newest));
    }
    made_ = std::make_shared<Kept>();
    made_->sources.reserve(plan_.sources.size());  // added once the run has succeeded
    for (int32_t input : plan_.sources) made_->data.push_back(inputs_[size_t(input)].array().data());
    for (int32_t storage : plan_.kept) {
      const Storage& s = plan_.storages[size_t(storage)];
      made_->values.push_back(Buffer::allocate(s.device, s.bytes));
    }
    frames.show_kept(frame_, made_);
  }
  bool is_current(const Kept& kept) const {
    for (size_t i = 0; i < kept.sources.size(); ++i)
      if (!(kept.sources[i] == source_of(plan_.sources[i])) ||
          kept.data[i] != inputs_[size_t(plan_.sources[i])].array().data())
        return false;
    return true;
  }

  // Returns the address that the steps read an input at. A copy takes less time than to patch the programs whenever the
  // input comes at another address.
  char* stage(size_t i, const Array& array) {
    frame_.staged.resize(plan_.staged.size());
    StagedInput& input = frame_.staged[i];
    auto* const data = static_cast<char*>(array.data());
    const char* const before = std::exchange(input.last, data);
    const Storage& storage = plan_.storages[i];
    if (!input.copy && (!before || before == data)) return data;
    if (!input.copy) input.copy = Buffer::allocate(storage.device, storage.bytes);
    auto* const copy = static_cast<char*>(input.copy->data);
    copy_within(storage.device, copy, data, storage.bytes.count());
    return copy;
  }

  void run_part(Execution& execution, size_t at, size_t end) {
    std::optional<ThreadPool::Awake> awake;  // steps on one thread come between regions
    if (!ctx_.suspender && plan_.segments.empty()) awake.emplace(ctx_.runtime->threads());
    if (plan_.segments.empty() || ctx_.detect_anomaly || ctx_.observer)
      execution.run(at, end);
    else
      execution.run_captured(at, end);
  }

  void run_and_borrow(Execution& execution) {
    const double start = thread_seconds();
    const size_t lend = size_t(plan_.lend);
    run_part(execution, first_step(), lend);
    ctx_.poll();
    const bool quick = thread_seconds() - start < kPatience;
    const SmallVector<Loan, 4> loans = bind_lendable(quick);
    if (!loans.empty()) execution.finish_uninterrupted();
    try {
      run_part(execution, lend, plan_.steps.size());
    } catch (...) {
      for (const Loan& loan : loans) {
        const Storage& storage = plan_.storages[size_t(plan_.fresh[loan.fresh].storage)];
        if (host_reads(storage.device)) std::memset(fresh_[loan.fresh].array().data(), 0, storage.bytes.count());
        *loan.home = fresh_[loan.fresh].detached();
      }
      throw;
    }
  }

  struct Loan {
    Value* home;
    size_t fresh;
  };
  // Allocates the outputs that cannot borrow before the others do: that may fail.
  SmallVector<Loan, 4> bind_lendable(bool quick) {
    SmallVector<Loan, 4> loans;
    for (size_t i = 0; i < plan_.fresh.size(); ++i) {
      const FreshOutput& f = plan_.fresh[i];
      if (f.lendable < 0) continue;
      if (Value* home = quick ? (*spare_)(f.lendable) : nullptr; home && fits(*home, f))
        loans.push_back({home, i});
      else
        fresh_[i] = allocate(f);
    }
    for (const Loan& loan : loans) {
      fresh_[loan.fresh] = std::move(*loan.home);
      *loan.home = Value();
    }
    for (size_t i = 0; i < plan_.fresh.size(); ++i)
      if (plan_.fresh[i].lendable >= 0)
        plan_.frames->patch(frame_, plan_.fresh[i].storage, static_cast<char*>(fresh_[i].array().data()));
    return loans;
  }
  static bool fits(const Value& home, const FreshOutput& f) {
    return home.is_array() && !home.has_node() && home.type() == f.layout->type && home.array().contiguous &&
           home.array().writable();
  }

  Value allocate(const FreshOutput& f) const {
    const Storage& storage = plan_.storages[size_t(f.storage)];
    Ref<Array> array = Array::make(f.layout->type);
    array->buffer = storage.in_block ? block_ : Buffer::allocate(storage.device, storage.bytes);
    array->offset = int64_t(storage.offset) / size_of(f.layout->type.dtype);
    return Value(std::move(array));
  }

  void bind_outputs() {
    for (const FreshOutput& f : plan_.fresh) {
      const Storage& storage = plan_.storages[size_t(f.storage)];
      if (f.lendable >= 0 && spare_) {
        fresh_.emplace_back();
        continue;
      }
      if (const Value* target = targets_.empty() ? nullptr : target_of(f)) {
        fresh_.push_back(target->detached());
      } else if (storage.donor >= 0 && donates(size_t(storage.donor))) {
        fresh_.push_back(inputs_[size_t(storage.donor)].detached());
      } else {
        fresh_.push_back(allocate(f));
      }
      plan_.frames->patch(frame_, f.storage, static_cast<char*>(fresh_.back().array().data()));
    }
  }
  bool fit(std::span<const Value> targets) const {
    for (size_t k = 0; k < targets.size(); ++k) {
      const Array& wanted = *plan_.outputs[k].layout;
      if (!targets[k].defined()) continue;
      const Array& target = targets[k].array();
      if (!(target.type == wanted.type) || !(target.strides == wanted.strides)) return false;
    }
    return true;
  }

  // Returns the target of the output that is the whole buffer, or null.
  const Value* target_of(const FreshOutput& f) const {
    for (size_t k = 0; k < targets_.size(); ++k) {
      const PlanOutput& o = plan_.outputs[k];
      const bool whole = plan_.storages[size_t(o.storage)].kind == Storage::kOutput && o.storage == f.storage &&
                         o.layout->offset == 0 && o.layout->type == f.layout->type &&
                         o.layout->strides == f.layout->strides;
      if (whole && targets_[k].defined()) return &targets_[k];
    }
    return nullptr;
  }

  bool donates(size_t input) const { return inputs_[input].array().contiguous && inputs_[input].array().writable(); }

  Value whole_of(const Storage& s) const {
    if (s.kind == Storage::kOutput) return fresh_[size_t(s.index)];
    return s.kind == Storage::kConstant ? plan_.constants[size_t(s.index)] : effective_input(size_t(s.index));
  }

  Value effective_input(size_t i) const {
    for (const Copy& c : copies_)
      if (c.input == i) return c.value;
    return inputs_[i].detached();
  }

  // Returns the array itself if the output covers it, else a view.
  static Value alias(const PlanOutput& o, const Value& whole) {
    const Array& a = whole.array();
    if (o.layout->offset == 0 && o.layout->type == a.type && o.layout->strides == a.strides) return whole.detached();
    Ref<Array> view = Array::make(o.layout->type);
    view->strides = o.layout->strides;
    view->offset = a.offset + o.layout->offset;
    view->contiguous = o.layout->contiguous;
    view->buffer = a.buffer;
    return Value(std::move(view));
  }

  struct Copy {
    size_t input;
    Value value;
  };
  const Plan& plan_;
  Context& ctx_;
  std::span<Value> inputs_;
  std::span<const RandomKey> generators_;
  const Spare* spare_;  // null if the run does not borrow memory
  std::span<const Value> targets_;
  FrameLease lease_;
  Frame& frame_;
  std::shared_ptr<Kept> made_;   // the results of invariant steps, if this run computes them
  SmallVector<Copy, 1> copies_;  // of inputs that are not row-major
  Ref<Buffer> block_;            // PlanOptions::left or consumed
  SmallVector<Value, 4> fresh_;  // one per entry of Plan::fresh; the input's own array if it is donated
};

const Plan& checked_plan(const Plan& plan, Context& ctx, size_t inputs) {
  if (inputs != plan.input_types.size())
    throw Error(fmt::format("plan: takes {} inputs, got {}", plan.input_types.size(), inputs));
  return keeps_operands(ctx) ? plan.node_by_node() : plan;
}

}  // namespace

Values run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators,
           const Spare* spare) {
  Values out;
  observed(ctx, Work::Kind::kProgram, plan.options.name,
           [&] { Run(checked_plan(plan, ctx, inputs.size()), ctx, inputs, generators, spare)(out); });
  return out;
}

void run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators,
         std::span<const Value> targets, Values& out) {
  out.clear();
  observed(ctx, Work::Kind::kProgram, plan.options.name,
           [&] { Run(checked_plan(plan, ctx, inputs.size()), ctx, inputs, generators, nullptr, targets)(out); });
}

}  // namespace pg
