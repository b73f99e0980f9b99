#include "graph/plan/simultaneous.h"

#include "graph/plan/fused.h"

namespace pg {
namespace {

// More steps would make the check of all pairs slow.
constexpr int32_t kMost = 64;

// The memory of a storage. An output that may take the memory of an input counts as that memory, and members of the
// block as parts of an arena.
struct Place {
  Storage::Kind kind;
  int32_t index;
  size_t begin, end;  // of an arena
};

Place place_of(const Plan& plan, int32_t storage) {
  const Storage& s = plan.storages[size_t(storage)];
  if (s.kind == Storage::kArena || s.in_block)
    return {Storage::kArena, s.in_block ? Storage::kBlock : s.arena, s.offset, s.offset + s.bytes.count()};
  if (s.donor >= 0) return {Storage::kInput, s.donor, 0, 1};
  return {s.kind, s.index, 0, 1};
}

bool overlap(const Plan& plan, int32_t view, int32_t other) {
  const int32_t a = plan.slots[size_t(view)].storage, b = plan.slots[size_t(other)].storage;
  if (a < 0 || b < 0) return false;
  const Place p = place_of(plan, a), q = place_of(plan, b);
  return p.kind == q.kind && p.index == q.index && p.begin < q.end && q.begin < p.end;
}

// Whether a step writes into an operand or result of the other.
bool writes_into(const Plan& plan, const Step& writer, const Step& other) {
  for (int32_t w = writer.out; w < writer.out + writer.out_count; ++w) {
    for (int32_t i = other.in; i < other.in + other.in_count; ++i)
      if (overlap(plan, w, i)) return true;
    for (int32_t i = other.out; i < other.out + other.out_count; ++i)
      if (overlap(plan, w, i)) return true;
  }
  return false;
}

bool joins(const Plan& plan, size_t first, size_t next) {
  const Step& step = plan.steps[next];
  if (!step.fused || !step.fused->batches() || !(step.device == plan.steps[first].device)) return false;
  for (size_t s = first; s < next; ++s)
    if (!apart(plan, plan.steps[s], step)) return false;
  return true;
}

}  // namespace

bool apart(const Plan& plan, const Step& a, const Step& b) {
  return !writes_into(plan, a, b) && !writes_into(plan, b, a);
}

void find_simultaneous(Plan& plan) {
  for (size_t first = 0; first < plan.steps.size();) {
    size_t end = first + 1;
    const size_t last = first < size_t(plan.invariant) ? size_t(plan.invariant) : plan.steps.size();
    if (plan.steps[first].fused && plan.steps[first].fused->batches())
      while (end < last && end - first < size_t(kMost) && joins(plan, first, end)) ++end;
    for (; first < end; ++first) plan.steps[first].at_once = int32_t(end - first);
  }
}

}  // namespace pg
