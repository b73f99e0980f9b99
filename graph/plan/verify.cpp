// Verifies the invariants of a plan, recomputed from its steps. Prints plans.
#include <algorithm>

#include "graph/plan/arena.h"
#include "graph/plan/plan.h"
#include "graph/plan/simultaneous.h"

namespace pg {
namespace {

class Verifier {
 public:
  explicit Verifier(const Plan& plan) : plan_(plan), lives_(plan.storages.size()), written_(plan.storages.size(), -1) {}

  void operator()() {
    check_tables();
    for (size_t s = 0; s < plan_.steps.size(); ++s) walk(s);
    check_simultaneous();
    check_outputs();
    check_arena();
    check_commit();
    check_invariant();
  }

 private:
  struct Life {
    int32_t first = -1, last = -1;
  };

  template <class... Args>
  [[noreturn]] static void bad(fmt::format_string<Args...> text, Args&&... args) {
    throw Error("plan: " + fmt::format(text, std::forward<Args>(args)...));
  }

  void check_tables() const {
    if (plan_.views.size() != plan_.slots.size()) bad("{} views but {} slots", plan_.views.size(), plan_.slots.size());
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      if (slot.storage < 0) continue;
      if (size_t(slot.storage) >= plan_.storages.size()) bad("view {} names storage {}", i, slot.storage);
      check_bounds(plan_.views[i].shape(), *plan_.views[i].strides, plan_.views[i].dtype(), slot.offset, slot.storage,
                   i);
    }
  }
  void check_bounds(const Dims& shape, const Dims& strides, DType dtype, int64_t offset, int32_t storage,
                    size_t view) const {
    if (numel(shape) == 0) return;
    int64_t low = 0, high = 0;
    for (int d = 0; d < shape.size(); ++d) (strides[d] < 0 ? low : high) += (shape[d] - 1) * strides[d];
    const int64_t size = size_of(dtype);
    if (offset + low * size < 0 || offset + (high + 1) * size > int64_t(plan_.storages[size_t(storage)].bytes.count()))
      bad("view {} leaves its storage {}", view, storage);
  }

  bool made_by_run(int32_t storage) const {
    const Storage::Kind kind = plan_.storages[size_t(storage)].kind;
    return kind == Storage::kArena || kind == Storage::kOutput || kind == Storage::kStack || kind == Storage::kKept;
  }

  void walk(size_t index) {
    const Step& step = plan_.steps[index];
    for (int32_t i = step.in; i < step.in + step.in_count; ++i) {
      const Slot& slot = plan_.slots[size_t(i)];
      if (slot.storage < 0) continue;
      if (made_by_run(slot.storage) && written_[size_t(slot.storage)] < 0)
        bad("step {} reads storage {} before it is written", index, slot.storage);
      if (written_[size_t(slot.storage)] != slot.written)
        bad("step {} expects the write of view {} in storage {}, but view {} wrote later", index, slot.written,
            slot.storage, written_[size_t(slot.storage)]);
      touch(slot.storage, index);
    }
    for (int32_t i = step.out; i < step.out + step.out_count; ++i) {
      const Slot& slot = plan_.slots[size_t(i)];
      if (slot.storage < 0 || !made_by_run(slot.storage))
        bad("step {} writes storage {}, which is not its own", index, slot.storage);
      written_[size_t(slot.storage)] = i;
      touch(slot.storage, index);
    }
    for (int32_t i = 0; i < step.scratch_count; ++i) touch(plan_.slots[size_t(step.scratch + i)].storage, index);
  }
  void check_simultaneous() const {
    for (size_t s = 0; s < plan_.steps.size(); ++s)
      for (size_t other = s + 1; other < s + size_t(plan_.steps[s].at_once); ++other)
        if (!plan_.steps[other].fused || !apart(plan_, plan_.steps[s], plan_.steps[other]))
          bad("steps {} and {} may not run at once", s, other);
  }
  void touch(int32_t storage, size_t step) {
    Life& life = lives_[size_t(storage)];
    if (life.first < 0) life.first = int32_t(step);
    life.last = int32_t(step);
  }

  void check_outputs() const {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const PlanOutput& o = plan_.outputs[i];
      if (o.storage < 0 || size_t(o.storage) >= plan_.storages.size()) bad("output {} has no storage", i);
      const Storage& s = plan_.storages[size_t(o.storage)];
      if (s.kind == Storage::kArena || s.kind == Storage::kImmediate || s.kind == Storage::kStack ||
          s.kind == Storage::kKept)
        bad("output {} aliases memory of the run", i);
      if (written_[size_t(o.storage)] != o.written) bad("output {} was overwritten", i);
      if (s.kind == Storage::kOutput && plan_.fresh[size_t(s.index)].storage != o.storage)
        bad("output {} has no buffer", i);
      check_bounds(o.layout->type.shape, o.layout->strides, o.layout->type.dtype,
                   o.layout->offset * size_of(o.layout->type.dtype), o.storage, i);
    }
  }

  // Arenas and the block, whose inputs live from the start and whose outputs to the end.
  void check_arena() {
    std::vector<int32_t> order;
    for (size_t s = 0; s < plan_.storages.size(); ++s) {
      const Storage& a = plan_.storages[s];
      if ((a.kind != Storage::kArena && !a.in_block) || lives_[s].first < 0 || a.bytes == Bytes()) continue;
      if (a.offset % kArenaAlignment) bad("the offset of storage {}, {}, is not aligned", s, a.offset);
      const Bytes end = a.in_block ? plan_.block_bytes() : plan_.arenas[size_t(a.arena)].bytes;
      if (Bytes(a.offset) + a.bytes > end) bad("storage {} leaves the arena", s);
      if (a.kind == Storage::kInput) lives_[s].first = 0;
      if (a.kind == Storage::kOutput) lives_[s].last = int32_t(plan_.steps.size());
      order.push_back(int32_t(s));
    }
    const auto at = [&](int32_t s) -> const Storage& { return plan_.storages[size_t(s)]; };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a).offset < at(b).offset; });
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t k = i + 1; k < order.size() && at(order[k]).offset < at(order[i]).offset + at(order[i]).bytes.count();
           ++k) {
        const Life &a = lives_[size_t(order[i])], &b = lives_[size_t(order[k])];
        const bool same = at(order[i]).in_block == at(order[k]).in_block &&
                          (at(order[i]).in_block || at(order[i]).arena == at(order[k]).arena);
        if (same && a.first <= b.last && b.first <= a.last)
          bad("storages {} and {} overlap while both live", order[i], order[k]);
      }
  }

  // Invariant steps read what lasts, and only their kept results are read later.
  void check_invariant() const {
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const Step& step = plan_.steps[s];
      const bool invariant = s < size_t(plan_.invariant);
      for (int32_t i = step.in; i < step.in + step.in_count; ++i) {
        const int32_t writer = plan_.slots[size_t(i)].written;
        if (plan_.slots[size_t(i)].storage < 0) continue;
        const Storage& from = plan_.storages[size_t(plan_.slots[size_t(i)].storage)];
        const bool early = writer >= 0 && size_t(writer) < views_before_each_run();
        if (invariant && writer < 0 && from.kind == Storage::kInput && !from.lasts)
          bad("invariant step {} reads input {}, which may change", s, from.index);
        if (!invariant && early && from.kind != Storage::kKept)
          bad("step {} reads storage {} of an invariant step, which is not kept", s, plan_.slots[size_t(i)].storage);
      }
      for (int32_t i = step.out; !invariant && i < step.out + step.out_count; ++i)
        if (const int32_t to = plan_.slots[size_t(i)].storage; plan_.storages[size_t(to)].kind == Storage::kKept)
          bad("step {} writes storage {}, which is kept", s, to);
    }
  }
  size_t views_before_each_run() const {
    if (plan_.invariant == 0) return 0;
    const Step& last = plan_.steps[size_t(plan_.invariant) - 1];
    return size_t(last.out + last.out_count);
  }

  // Only the commit section rewrites inputs. Each input is rewritten at most once and not read afterwards.
  void check_commit() const {
    std::vector<int32_t> donated(plan_.input_types.size(), -1);
    for (size_t s = 0; s < plan_.storages.size(); ++s) {
      const Storage& storage = plan_.storages[s];
      if (storage.donor < 0) continue;
      if (size_t(storage.donor) >= donated.size() || std::exchange(donated[size_t(storage.donor)], int32_t(s)) >= 0)
        bad("input {} is given away twice", storage.donor);
      if (storage.kind != Storage::kOutput || lives_[s].first < plan_.commit)
        bad("storage {} rewrites input {} before the commit section", s, storage.donor);
      if (lives_[size_t(storage.donor)].last > lives_[s].first)
        bad("input {} is read after it was rewritten", storage.donor);
    }
    for (const PlanOutput& o : plan_.outputs)
      if (size_t(o.storage) < donated.size() && donated[size_t(o.storage)] >= 0)
        bad("an output shares input {}, which is given away", o.storage);
  }

  const Plan& plan_;
  std::vector<Life> lives_;
  std::vector<int32_t> written_;  // by storage: the last view that wrote it
};

std::string describe(const Plan& plan, int32_t view) {
  const Slot& slot = plan.slots[size_t(view)];
  if (slot.storage < 0) return "nil";
  const Storage& s = plan.storages[size_t(slot.storage)];
  const std::string place = slot.offset ? fmt::format("+{}", slot.offset) : "";
  switch (s.kind) {
    case Storage::kInput:
      return fmt::format("in{}{}", s.index, place);
    case Storage::kConstant:
      return fmt::format("const{}{}", s.index, place);
    case Storage::kOutput:
      return fmt::format("out{}{}", s.index, place);
    case Storage::kArena:
      return fmt::format("{}[{}]", s.in_block ? "block" : "", int64_t(s.offset) + slot.offset);
    case Storage::kKept:
      return fmt::format("kept{}{}", s.index, place);
    case Storage::kStack:
      return fmt::format("stack{}", s.index);
    case Storage::kImmediate:
      break;
  }
  const Array& a = plan.immediates[size_t(s.index)].array();
  return fmt::format("{}", load_number(a.type.dtype, a.data()));
}

}  // namespace

void verify(const Plan& plan) {
  Verifier verifier(plan);
  verifier();
}

std::string label_of(const Step& step) {
  if (step.control) return step.control->name;
  if (!step.body) return step.op->name;
  std::string label = "fused";
  for (const Node& node : step.body->nodes)
    if (node.kind == NodeKind::kOp) label += std::string(" ") + node.op->name;
  return label;
}

std::string to_string(const Plan& plan) {
  std::string text = fmt::format("arena {}\n", plan.arena_bytes().count());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    if (s == size_t(plan.commit)) text += "commit\n";
    if (s == size_t(plan.invariant) && s > 0) text += "each run\n";
    for (int32_t i = 0; i < step.out_count; ++i) text += (i ? ", " : "") + describe(plan, step.out + i);
    text += fmt::format(" = {}(", step.control ? step.control->name.c_str() : step.fused ? "fused" : step.op->name);
    for (int32_t i = 0; i < step.in_count; ++i) text += (i ? ", " : "") + describe(plan, step.in + i);
    text += ")\n";
    for (size_t b = 0; step.control && b < step.control->bodies.size(); ++b) {
      std::string body = to_string(*step.control->bodies[b]);
      for (size_t at = 0; at < body.size(); at = body.find('\n', at) + 1) body.insert(at, "  | "), at += 4;
      text += body;
    }
  }
  return text;
}

}  // namespace pg
