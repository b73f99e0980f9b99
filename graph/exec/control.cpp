// Branches and loops of plans. A body runs in its own frame, whose memory is the scratch memory of the step. Between
// two steps of a loop only pointers change.
#include <algorithm>
#include <limits>
#include <optional>

#include "graph/exec/body_run.h"
#include "graph/plan/fused.h"
#include "tensor/device_table.h"
#include "tensor/observer.h"
#include "tensor/stack_depth.h"

namespace pg {

namespace {

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t stream_of(const RandomKey& state, uint64_t tick) { return mixed(mixed(state.seed) ^ (state.tick + tick)); }

}  // namespace

// The body of a chunk gets the stream of its loop and the number of the steps before the chunk. The loop inside the
// chunk continues from that number.
RandomKey body_state(const RandomKey& outer, const BodyStream& s, uint64_t step) {
  if (s.inner) return {mixed(outer.seed ^ (outer.tick + step)), 0};
  if (s.chunk > 0) return {stream_of(outer, s.tick), (step - 1) * s.chunk};
  return body_stream(outer, s.tick, s.before + step);
}

RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step) {
  return {mixed(stream_of(state, tick) ^ step), 0};
}

constexpr int64_t kWorthPacking = 4;  // steps of a loop

// A program that is being captured gets a kernel that writes the number.
void Execution::write_number(Device device, void* to, int64_t number) const {
  if (!stream_) return RemoteNumber<int64_t>(device, to).set(number);
  const Type type{DType::kInt64, device, {}};
  const Dims strides = {};
  const View view{&type, &strides, to};
  const OpDef& op = op_named<"full">();
  const Attrs attrs = make_attrs(op, {{"shape", std::vector<int64_t>{}}, {"value", double(number)}});
  const auto no_allocation = [](int, const Dims&) -> View { return {}; };
  registry().kernel(op, device).fn(KernelArgs{op, {}, {&view, 1}, attrs, no_allocation, stream_});
}

void Execution::run_control(const Step& step) {
  ctx_.poll();
  if (recording_ && !step.control->is_loop)
    record_branch(step);
  else if (recording_ && step.control->repeats)
    record_loop(step);
  else if (step.control->is_loop)
    run_loop(step);
  else
    run_branch(step);
}

namespace {

template <class T>
RemoteNumber<T> number_in(const View& v) {
  return {v.type->device, v.data};
}

bool is_true(const View& pred) {
  return visit_dtype(pred.dtype(),
                     [&](auto tag) { return double(number_in<typename decltype(tag)::type>(pred).get()) != 0; });
}

}  // namespace

void Execution::run_branch(const Step& step) {
  check_body_depth();
  const size_t taken = is_true(in(step, 0)) ? 0 : 1;
  BodyRun body(*this, step, taken, 1, 0);
  for (size_t k = 1; k < size_t(step.in_count); ++k) body.bind_input(k - 1, in(step, k).data);
  for (size_t k = 0; k < size_t(step.out_count); ++k) body.bind_output(k, out(step, k).data);
  body.refresh_packs(false);
  body(taken + 1);
}

namespace {

// A stacked output: memory of the plan with a fixed number of rows, or a buffer that grows. Works on a stream.
class RowWriter {
 public:
  RowWriter(const View& whole, size_t row_bytes, Ref<Buffer>* stack, void* stream)
      : device_(whole.type->device),
        base_(static_cast<char*>(whole.data)),
        bytes_(row_bytes),
        stack_(stack),
        stream_(stream) {}
  char* row(int64_t i) {
    if (stack_) reserve(i + 1);
    return base_ + size_t(i) * bytes_;
  }
  void clear_from(int64_t first, int64_t rows) {
    if (stack_ || rows <= first) return;
    device_table(device_).clear(device_.index, stream_, base_ + size_t(first) * bytes_, size_t(rows - first) * bytes_);
  }

 private:
  void reserve(int64_t rows) {
    const Bytes has(*stack_ ? (*stack_)->bytes : 0), needed = Bytes::of(rows, bytes_);
    if (needed > has || !*stack_) {
      Ref<Buffer> larger = Buffer::allocate(device_, std::max({needed, has + has, Bytes(4096)}));
      if (*stack_) copy_within(device_, larger->data, (*stack_)->data, has.count());
      *stack_ = std::move(larger);
    }
    base_ = static_cast<char*>((*stack_)->data);
  }

  Device device_;
  char* base_;
  size_t bytes_;
  Ref<Buffer>* stack_;
  void* stream_;
};

}  // namespace

// A single run of a loop.
class LoopRun {
 public:
  LoopRun(Execution& outer, const Step& step)
      : outer_(outer),
        step_(step),
        form_(step.control->loop),
        body_(outer, step, 0, size_t(form_.first_slice(false) + form_.slices + form_.carries),
              size_t(1 + form_.slices + form_.carries)),
        first_(size_t(form_.first_slice(false))),
        slices_(size_t(form_.slices)),
        flag_(form_.conditional),
        reads_index_(body_.reads_input(0)) {
    count_steps();
    body_.bind_input(0, body_.scratch(step.control->index));
    if (flag_) {
      more_.emplace(body_.output(0).device, body_.scratch(step.control->flag));
      body_.bind_output(0, body_.scratch(step.control->flag));
    }
    start_carries();
    for (size_t k = first_ + slices_ + carries_.size(); k < size_t(step.in_count); ++k)
      body_.bind_input(k - first_ + 1, outer.in(step, k).data);
    for (size_t k = 1 + carries_.size(); k < size_t(step.out_count); ++k) start_rows(k);
    body_.refresh_packs(most_ >= kWorthPacking);
  }

  void operator()() {
    bool more = !flag_ || is_true(outer_.in(step_, first_ - 1));
    int64_t n = 0;
    if (more && most_ > 1 && find_recurrence()) {
      n = iterate();
    } else {
      for (; n < most_ && more; ++n) {
        run_step(n);
        if (flag_) more = more_->get();
      }
    }
    for (size_t k = 0; k < carries_.size(); ++k)
      if (carries_[k].now != carries_[k].result) copy_carry(k, carries_[k].now);
    for (RowWriter& rows : rows_) rows.clear_from(form_.reverse ? most_ : n, form_.limit);
    const View& steps = outer_.out(step_, 0);
    outer_.write_number(steps.type->device, steps.data, n);
    for (size_t k = 1 + carries_.size(); k < size_t(step_.out_count); ++k) outer_.show_stack(step_.out + int32_t(k));
  }

 private:
  struct Carry {
    const char* now;
    char *result, *other;  // the two buffers of the carry
    bool in_place;
    int32_t rows = -1;  // the stacked output whose row of a step is the carry before it; -1: none
  };

  // Whether the body is one fused step that computes all carries and the flag, each of one element, so that the kernel
  // can run the steps by itself.
  bool find_recurrence() {
    const Plan& plan = body_.plan();
    if (plan.steps.size() != 1 || !plan.steps[0].fused || slices_ > 0 || !rows_.empty() || form_.reverse) return false;
    const Step& step = plan.steps[0];
    if (keeps_operands(outer_.ctx_) || !host_reads(step.device)) return false;
    const auto place = [&](int32_t first, int32_t count, int32_t storage) {  // of the only view of the storage, or -1
      int32_t found = -1;
      for (int32_t i = 0; i < count; ++i) {
        const Slot& slot = plan.slots[size_t(first + i)];
        if (slot.storage != storage) continue;
        if (found >= 0 || slot.offset != 0) return -1;
        found = i;
      }
      return found;
    };
    for (const View& v : body_.views(step.out, step.out_count))
      if (v.numel() != 1) return false;
    if (size_t(step.out_count) != carries_.size() + flag_) return false;
    for (size_t k = 0; k < carries_.size() + flag_; ++k) {
      const int32_t out = place(step.out, step.out_count, plan.outputs[k].storage);
      if (out < 0) return false;
      if (k < flag_) {
        recurrence_.flag = out;
        continue;
      }
      const int32_t in = place(step.in, step.in_count, int32_t(1 + k - flag_));
      if (in < 0) return false;
      recurrence_.carries.push_back({in, out});
    }
    recurrence_.index = place(step.in, step.in_count, 0);
    return step.fused->iterate(recurrence_, body_.views(step.in, step.in_count), body_.views(step.out, step.out_count),
                               0) == 0;
  }

  // Runs all steps in the kernel of the body. Returns their number.
  int64_t iterate() {
    constexpr int64_t kBlock = 4096;  // steps between two polls
    const Step& step = body_.plan().steps[0];
    int64_t n = 0;
    for (bool more = true; more && n < most_;) {
      outer_.ctx_.poll();
      write_index(n + 1);
      for (size_t k = 0; k < carries_.size(); ++k) {
        body_.bind_input(1 + k, carries_[k].now);
        body_.bind_output(flag_ + k, carries_[k].result);
        carries_[k].now = carries_[k].result;
      }
      n += step.fused->iterate(recurrence_, body_.views(step.in, step.in_count), body_.views(step.out, step.out_count),
                               std::min(kBlock, most_ - n));
      if (flag_) more = more_->get();
    }
    return n;
  }

  void count_steps() {
    most_ = form_.limit >= 0 ? form_.limit : std::numeric_limits<int64_t>::max();
    known_ = !form_.conditional && (form_.limit >= 0 || form_.counted);
    if (!form_.counted) return;
    const int64_t count = number_in<int64_t>(outer_.in(step_, 0)).get();
    if (count < 0 || count > kMaxElements)
      throw Error(fmt::format("{}: bad argument 'count' (expected a whole number >= 0{}, got {})", step_.control->name,
                              count < 0 ? "" : " and at most 2^56", count));
    most_ = std::min(most_, count);
  }

  void start_carries() {
    for (size_t k = 0; k < size_t(form_.carries); ++k) {
      char* result = static_cast<char*>(outer_.out(step_, 1 + k).data);
      const char* before = static_cast<const char*>(outer_.in(step_, first_ + slices_ + k).data);
      const bool in_place = body_.donates(flag_ + k, 1 + slices_ + k);
      carries_.push_back({in_place ? result : before, result, body_.scratch(step_.control->slots[k]), in_place});
      if (in_place && result != before) copy_carry(k, before);
    }
  }

  void copy_carry(size_t k, const char* from) { copy_carry(k, carries_[k].result, from); }
  void copy_carry(size_t k, char* to, const char* from) {
    const Storage& carry = body_.input(1 + slices_ + k);
    device_table(carry.device).copy(carry.device.index, outer_.queue_of(carry.device), to, from, carry.bytes.count());
  }

  void start_rows(size_t output) {
    const View& whole = outer_.out(step_, output);
    rows_.emplace_back(whole, body_.output(flag_ + output - 1).bytes.count(),
                       outer_.stack_of(step_.out + int32_t(output)), outer_.queue_of(whole.type->device));
    if (const int32_t carry = body_.plan().outputs[flag_ + output - 1].before; carry >= 0)
      carries_[size_t(carry) - flag_].rows = int32_t(rows_.size()) - 1;
  }

  void write_index(int64_t number) {
    if (reads_index_) outer_.write_number(body_.input(0).device, body_.scratch(step_.control->index), number);
  }

  void run_step(int64_t n) {
    outer_.ctx_.poll();
    const int64_t row = row_of(n);
    write_index(row + 1);
    for (size_t k = 0; k < slices_; ++k)
      body_.bind_input(1 + k, static_cast<const char*>(outer_.in(step_, first_ + k).data) +
                                  size_t(row) * body_.input(1 + k).bytes.count());
    for (size_t k = 0; k < carries_.size(); ++k) {
      Carry& c = carries_[k];
      if (c.rows >= 0 && n == 0) {
        char* const first = rows_[size_t(c.rows)].row(row);
        copy_carry(k, first, c.now);
        c.now = first;
      }
      body_.bind_input(1 + slices_ + k, c.now);
      char* const next = buffer_after(c, n);
      c.now = next;
      body_.bind_output(flag_ + k, next);
    }
    for (size_t k = 0; k < rows_.size(); ++k) {
      const size_t output = flag_ + carries_.size() + k;
      if (body_.plan().outputs[output].before >= 0) continue;
      char* const memory = rows_[k].row(row);
      body_.bind_output(output, memory);
      if (const int32_t carry = body_.plan().outputs[output].same_as; carry >= 0)
        carries_[size_t(carry) - flag_].now = memory;
    }
    body_(uint64_t(row + 1));
  }

  int64_t row_of(int64_t n) const { return form_.reverse ? most_ - 1 - n : n; }

  // Where step n writes the carry: to the row of the next step, or to one of the two buffers.
  char* buffer_after(const Carry& c, int64_t n) {
    if (c.rows >= 0) return n + 1 < most_ ? rows_[size_t(c.rows)].row(row_of(n + 1)) : c.result;
    // With a known number of steps, the buffers alternate so that the last step writes to the result.
    const bool to_result = c.in_place || (known_ ? (most_ - 1 - n) % 2 == 0 : c.now != c.result);
    return to_result ? c.result : c.other;
  }

  Execution& outer_;
  const Step& step_;
  const LoopForm& form_;
  BodyRun body_;
  const size_t first_, slices_, flag_;
  const bool reads_index_;
  std::optional<RemoteNumber<bool>> more_;
  int64_t most_ = 0;
  bool known_ = false;  // whether the number of steps is known
  Recurrence recurrence_;
  SmallVector<Carry, 4> carries_;
  SmallVector<RowWriter, 2> rows_;
};

void Execution::run_loop(const Step& step) {
  check_body_depth();
  LoopRun(*this, step)();
}

// Returns the growing buffer of a stacked output of unknown length, or null if the number of rows is fixed.
Ref<Buffer>* Execution::stack_of(int32_t view) const {
  const Storage& storage = plan_.storages[size_t(plan_.slots[size_t(view)].storage)];
  return storage.kind == Storage::kStack ? &frame_.stacks[size_t(storage.index)] : nullptr;
}

// Points later steps to the buffer, which moves when it grows.
void Execution::show_stack(int32_t view) const {
  if (Ref<Buffer>* stack = stack_of(view); stack && *stack)
    plan_.frames->patch(frame_, plan_.slots[size_t(view)].storage, static_cast<char*>((*stack)->data));
}

}  // namespace pg
