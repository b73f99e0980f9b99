#include "graph/plan/commit.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "graph/plan/fused_body.h"
#include "tensor/device_table.h"

namespace pg {
namespace {

// A step that rewrites an input goes last, and may work in the buffer of the input. So does a fused step whose outputs
// replace inputs. Steps that read what it computes belong to the section too; they must not be able to fail. One step
// of the section may be able to fail (it checks indices before it writes). It comes first. A step cannot fail if an
// earlier one has checked its indices.
class Commit {
 public:
  Commit(Plan& plan, const std::vector<PlanValue>& values, std::vector<Draft>& drafts,
         const std::vector<int32_t>& outputs)
      : plan_(plan), values_(values), drafts_(drafts), outputs_(outputs) {}

  void operator()() {
    for (const Replacement& r : plan_.options.replacements) replaced_[outputs_[size_t(r.output)]] = r.input;
    find_viewed();
    find_closed();
    choose_steps();
    choose_donors();
  }

 private:
  void find_viewed() {
    std::vector<int32_t> newest(plan_.storages.size(), -1);
    viewed_.resize(values_.size());
    for (size_t v = values_.size(); v-- > 0;)
      viewed_[v] = std::exchange(newest[size_t(values_[v].storage)], int32_t(v)) >= 0;
  }

  // A step is closed if neither it nor a step that depends on it can fail.
  void find_closed() {
    std::vector<bool> open(values_.size(), false);  // by value: a step that reads it is not closed
    closed_.resize(drafts_.size());
    for (size_t s = drafts_.size(); s-- > 0;) {
      const Draft& d = drafts_[s];
      closed_[s] = cannot_fail(d) && std::none_of(d.out.begin(), d.out.end(),
                                                  [&](int32_t v) { return open[size_t(v)] || viewed_[size_t(v)]; });
      for (int32_t v : d.in)
        if (v >= 0 && !closed_[s]) open[size_t(v)] = true;
    }
  }
  bool cannot_fail(const Draft& d) const {
    if (d.control || d.op->has(kEffect)) return false;
    if (d.fused) return is_total(*d.body);
    return pg::cannot_fail(*d.op, layout(d.out[0]).type.dtype) || !d.op->in_place.empty();
  }

  void choose_steps() {
    std::vector<bool> late(values_.size(), false);  // by value: a step of the section makes it
    bool fallible = false;
    for (size_t s = 0; s < drafts_.size(); ++s) {
      Draft& d = drafts_[s];
      const bool depends = std::any_of(d.in.begin(), d.in.end(), [&](int32_t v) { return v >= 0 && late[size_t(v)]; });
      if (!depends && !rewrites_input(s)) continue;
      d.total = closed_[s] || is_checked(d);
      if (!d.total && std::exchange(fallible, true)) continue;
      d.commit = true;
      for (int32_t v : d.out) late[size_t(v)] = true;
    }
  }

  bool rewrites_input(size_t s) const {
    const Draft& d = drafts_[s];
    if (d.control || !plan_.options.in_place) return false;
    if (d.fused ? !closed_[s] : !d.op->has(kInPlace) || d.op->has(kEffect)) return false;
    bool any = false;
    for (size_t i = 0; i < d.out.size(); ++i) {
      if (!d.fused && (values_[size_t(d.out[i])].readers || viewed_[size_t(d.out[i])])) return false;
      any |= rewritten(d, i) >= 0;
    }
    return any;
  }
  // Returns the input of the plan whose memory output i of a step may take, or -1. A value that a body
  // returns twice is copied, before the section, or is in other memory than its input.
  int32_t rewritten(const Draft& d, size_t i) const {
    if (d.control) return -1;
    if (plan_.options.body && std::count(outputs_.begin(), outputs_.end(), d.out[i]) > 1) return -1;
    if (d.fused) return replaced_by(d, i);
    const size_t at = rewritten_input(*d.op, d.in.size(), i);
    if (at >= d.in.size() || d.in[at] < 0 || size_t(d.in[at]) >= plan_.input_types.size()) return -1;
    return layout(d.in[at]).type == layout(d.out[i]).type ? d.in[at] : -1;
  }
  // The same for a fused step, which may write over an operand of the size of its index space.
  int32_t replaced_by(const Draft& d, size_t i) const {
    const auto found = replaced_.find(d.out[i]);
    if (found == replaced_.end() || !fills_space(*d.body, layout(d.out[i]).type.shape)) return -1;
    const int32_t input = found->second;
    const bool read = std::find(d.in.begin(), d.in.end(), input) != d.in.end();
    return read && layout(input).type == layout(d.out[i]).type ? input : -1;
  }

  static bool takes_index(const OpDef& op) {
    return op.inputs.size() > 1 && std::string_view(op.inputs[1].name) == "index" && op.inputs[1].arity == Arity::kOne;
  }
  // Whether a step before the section uses the same indices in the same dim of an array of the same shape.
  bool is_checked(const Draft& d) const {
    if (!d.device.is_cpu() || !takes_index(*d.op)) return false;  // on other devices errors may come late
    for (size_t s = 0; s < drafts_.size(); ++s) {
      const Draft& e = drafts_[s];
      if (!e.commit && !e.control && !e.fused && e.op && takes_index(*e.op) && !rewrites_input(s) &&
          e.in[1] == d.in[1] && *e.attrs == *d.attrs && layout(e.in[0]).type.shape == layout(d.in[0]).type.shape)
        return true;
    }
    return false;
  }

  // A step takes the memory of an input that it reads once, as the last one of the section. The graph must not return
  // the input.
  void choose_donors() {
    const size_t inputs = plan_.input_types.size();
    std::vector<size_t> last(inputs, 0);  // by input: the place of the last step that reads it
    std::vector<int> reads(inputs, 0);    // how often that step does
    for (size_t s = 0; s < drafts_.size(); ++s)
      if (drafts_[s].commit)
        for (int32_t v : drafts_[s].in)
          if (const int32_t input = input_of(v); input >= 0) {
            const size_t at = place(s);
            if (at > last[size_t(input)]) last[size_t(input)] = at, reads[size_t(input)] = 0;
            reads[size_t(input)] += at == last[size_t(input)];
          }
    for (int32_t v : outputs_)
      if (const int32_t input = input_of(v); input >= 0) reads[size_t(input)] = -1;
    for (size_t s = 0; s < drafts_.size(); ++s) {
      Draft& d = drafts_[s];
      for (size_t i = 0; d.commit && i < d.out.size(); ++i) {
        const int32_t input = rewritten(d, i);
        if (input >= 0 && reads[size_t(input)] == 1 && last[size_t(input)] == place(s) &&
            values_[size_t(d.out[i])].returned)
          plan_.storages[size_t(values_[size_t(d.out[i])].storage)].donor = input;
      }
    }
  }
  // The step that can fail comes first in the section.
  size_t place(size_t s) const { return drafts_[s].total ? s + 2 : 1; }
  // Returns the input in whose memory the value is, or -1.
  int32_t input_of(int32_t value) const {
    if (value < 0) return -1;
    const Storage& s = plan_.storages[size_t(values_[size_t(value)].storage)];
    return s.kind == Storage::kInput ? s.index : -1;
  }

  const Array& layout(int32_t value) const { return *values_[size_t(value)].layout; }

  Plan& plan_;
  const std::vector<PlanValue>& values_;
  std::vector<Draft>& drafts_;
  const std::vector<int32_t>& outputs_;
  std::map<int32_t, int32_t> replaced_;  // by value: the input that it replaces
  std::vector<bool> viewed_;             // by value: a later value is in its storage
  std::vector<bool> closed_;             // by draft
};

}  // namespace

void choose_commit(Plan& plan, const std::vector<PlanValue>& values, std::vector<Draft>& drafts,
                   const std::vector<int32_t>& outputs) {
  if (plan.options.in_place) Commit(plan, values, drafts, outputs)();
}

bool is_total(const Graph& body) {
  return std::all_of(body.nodes.begin(), body.nodes.end(),
                     [](const Node& n) { return !n.op || cannot_fail(*n.op, n.types[0].dtype); });
}

bool fills_space(const Graph& body, const Dims& shape) {
  int64_t space = 0;
  for (const Node& n : body.nodes)
    for (const Type& t : n.types)
      if (!is_join(n)) space = std::max(space, numel(t.shape));
  return numel(shape) == space;
}

}  // namespace pg
