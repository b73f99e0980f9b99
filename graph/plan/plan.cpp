// Planning: nodes become steps over values, values get storages, and storages with overlapping lifetimes get separate
// places in the arena of their device.
#include "graph/plan/plan.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "graph/exec/frame.h"
#include "graph/plan/arena.h"
#include "graph/plan/commit.h"
#include "graph/plan/lower.h"
#include "graph/plan/segments.h"
#include "graph/plan/simultaneous.h"
#include "tensor/device_table.h"
#include "tensor/settings.h"
#include "tensor/stack_depth.h"

namespace pg {
namespace {

constexpr Bytes kPollBytes = Bytes(32 << 10);   // a step that touches more bytes may take over 10 µs
constexpr Bytes kLargeBytes = Bytes(64 << 10);  // smaller values are not placed between the members of a block

class Planner : Lowering {
 public:
  Planner(const Graph& graph, const PlanOptions& options) : Lowering(graph, options), left_(graph.outputs.size(), -1) {
    const auto& members = options.left.members;
    for (size_t k = 0; k < members.size(); ++k) left_[size_t(members[k])] = int32_t(k);
  }

  std::shared_ptr<const Plan> build() {
    add_inputs(graph_);
    place_inputs();
    const std::vector<int32_t> outputs = lower(graph_, input_values(), -1);
    for (int32_t v : outputs) values_[size_t(v)].returned = true;
    choose_commit(*plan_, values_, drafts_, outputs);
    add_outputs(outputs);
    choose_kept();
    order_steps();
    find_lifetimes();
    if (plan_->options.in_place) share_in_place();
    choose_lendable();
    if (plan_->block_bytes() > Bytes()) place_in_block();
    place_storages();
    emit();
    return plan_;
  }

 private:
  // Lent memory -----------------------------------------------------------------------------------------------------
  //
  // Spare memory holds what the caller has to find unchanged after a failure. An output may take it if its first step
  // and all later ones cannot fail.
  void choose_lendable() {
    plan_->lend = int32_t(drafts_.size());
    if (plan_->options.lendable.empty()) return;
    std::vector<const OpDef*> makers(plan_->storages.size());  // by storage
    for (size_t i = 0; i < graph_.inputs.size(); ++i) makers[i] = graph_.nodes[size_t(graph_.inputs[i])].op;
    for (const Draft& d : drafts_)
      for (int32_t v : d.out) makers[size_t(values_[size_t(v)].storage)] = d.op;
    int32_t safe = plan_->lend;
    while (safe > 0 && cannot_fail(drafts_[size_t(safe) - 1], makers)) --safe;
    for (int32_t output : plan_->options.lendable) {
      const PlanOutput& o = plan_->outputs[size_t(output)];
      const Storage& s = plan_->storages[size_t(o.storage)];
      if (s.kind != Storage::kOutput || s.donor >= 0 || s.first < safe || o.same_as >= 0) continue;
      plan_->fresh[size_t(s.index)].lendable = output;
      plan_->lend = std::min(plan_->lend, s.first);
    }
  }
  bool cannot_fail(const Draft& d, const std::vector<const OpDef*>& makers) const {
    if (d.control || d.op->has(kEffect)) return false;
    if (d.body) return is_total(*d.body);
    if (pg::cannot_fail(*d.op, layout(d.out[0]).type.dtype) || !d.op->in_place.empty()) return true;
    return d.op->accepts && std::all_of(d.in.begin() + 1, d.in.end(), [&](int32_t v) {
             const OpDef* maker = v < 0 ? nullptr : makers[size_t(values_[size_t(v)].storage)];
             return maker && std::string_view(maker->name) == d.op->accepts;
           });
  }

  void order_steps() {
    const auto rank = [](const Draft& d) { return d.commit ? d.total ? 2 : 1 : d.invariant ? -1 : 0; };
    std::stable_sort(drafts_.begin(), drafts_.end(), [&](const Draft& a, const Draft& b) { return rank(a) < rank(b); });
    plan_->commit = int32_t(std::find_if(drafts_.begin(), drafts_.end(), [](const Draft& d) { return d.commit; }) -
                            drafts_.begin());
    plan_->invariant =
        int32_t(std::count_if(drafts_.begin(), drafts_.end(), [](const Draft& d) { return d.invariant; }));
  }

  // Invariant steps --------------------------------------------------------------------------------------------------
  //
  // Results that other steps read are kept. Steps whose results leave the program run each time.
  void choose_kept() {
    std::vector<bool> source(plan_->input_types.size());
    for (Draft& d : drafts_) {
      if (d.invariant && !may_stay(d)) {
        d.invariant = false;
        for (int32_t v : d.out) storage_of(v).lasts = false;
      }
      for (int32_t v : d.in) {
        if (v < 0) continue;
        Storage& s = storage_of(v);
        if (d.invariant && s.kind == Storage::kInput) source[size_t(s.index)] = true;
        if (d.invariant || !s.lasts || s.kind != Storage::kArena) continue;
        s.kind = Storage::kKept;
        s.index = int32_t(plan_->kept.size());
        plan_->kept.push_back(values_[size_t(v)].storage);
      }
    }
    for (size_t i = 0; i < source.size(); ++i)
      if (source[i]) plan_->sources.push_back(int32_t(i));
    if (!plan_->sources.empty()) describe_invariant();
  }
  void describe_invariant() {
    std::string& text = plan_->invariant_steps;
    std::vector<int32_t> made(plan_->storages.size(), -1);  // by storage: its number among the results
    int32_t results = 0;
    const auto place = [&](int32_t v) {
      const Storage& s = storage_of(v);
      if (s.kind == Storage::kInput) return fmt::format("in{}", s.index);
      if (s.kind == Storage::kConstant) return fmt::format("const{}", plan_->constants[size_t(s.index)].array().data());
      if (s.kind != Storage::kImmediate) return fmt::format("#{}", made[size_t(values_[size_t(v)].storage)]);
      const Array& number = plan_->immediates[size_t(s.index)].array();
      return fmt::format("{}", load_number(number.type.dtype, number.data()));
    };
    for (const Draft& d : drafts_) {
      if (!d.invariant) continue;
      text += d.body ? to_string(*d.body) : d.op->name;
      for (size_t k = 0; !d.body && k < d.attrs->size(); ++k) text += " " + to_string((*d.attrs)[k]);
      for (int32_t v : d.in) {
        if (v < 0) {
          text += " nil";
          continue;
        }
        const Array& a = layout(v);
        text += fmt::format(" {} {} {} +{}", place(v), to_string(a.type), to_string(a.strides), a.offset);
      }
      for (int32_t v : d.out) {
        made[size_t(values_[size_t(v)].storage)] = results++;
        text += " > " + to_string(layout(v).type);
      }
      text += "\n";
    }
    for (int32_t storage : plan_->kept) text += fmt::format("#{} ", made[size_t(storage)]);
  }
  bool may_stay(const Draft& d) {
    const auto lasts = [&](int32_t v) {
      return v < 0 || storage_of(v).lasts || storage_of(v).kind == Storage::kConstant ||
             storage_of(v).kind == Storage::kImmediate;
    };
    const auto inner = [&](int32_t v) { return storage_of(v).kind == Storage::kArena; };
    return !d.commit && std::all_of(d.in.begin(), d.in.end(), lasts) && std::all_of(d.out.begin(), d.out.end(), inner);
  }

  // Outputs ---------------------------------------------------------------------------------------------------------
  bool covers_storage(int32_t value) {
    return layout(value).contiguous && layout(value).offset == 0 &&
           bytes_of(layout(value).type) == storage_of(value).bytes;
  }
  void add_outputs(const std::vector<int32_t>& outputs) {
    std::vector<int32_t> first(values_.size(), -1);  // by value: its position among the outputs
    for (int32_t v : outputs) {
      const auto [same_as, before] = places_of_next(first[size_t(v)]);
      if (before >= 0) {
        plan_->outputs.push_back(
            {values_[size_t(v)].storage, values_[size_t(v)].layout, values_[size_t(v)].root, -1, before});
      } else if (same_as >= 0) {
        PlanOutput same = plan_->outputs[size_t(same_as)];
        same.same_as = same_as;
        plan_->outputs.push_back(std::move(same));
      } else {
        first[size_t(v)] = int32_t(plan_->outputs.size());
        plan_->outputs.push_back(output_of(v));
      }
    }
  }
  // PlanOutput::same_as and before of the next output. `first`: the first output with its value.
  std::pair<int32_t, int32_t> places_of_next(int32_t first) const {
    if (!plan_->options.body) return {first, -1};
    const OutputPlaces& places = plan_->options.places;
    const size_t at = plan_->outputs.size();
    return at < places.before.size() ? std::pair(places.same_as[at], places.before[at]) : std::pair(-1, -1);
  }
  // Views of inputs and constants share the memory of these, as in eager mode. Of the program's own memory, which
  // inputs that it may write over are part of, only whole arrays are returned.
  PlanOutput output_of(int32_t value) {
    const Storage::Kind kind = storage_of(value).kind;
    const bool given =
        !plan_->options.body && !storage_of(value).in_block && (kind == Storage::kInput || kind == Storage::kConstant);
    const bool moves = storage_of(value).pinned && !plan_->options.body;  // each run has other memory for outputs
    const bool whole = (kind == Storage::kArena || (kind == Storage::kOutput && !plan_->options.body)) &&
                       covers_storage(value) && !moves;
    if (!given && !whole) value = add_copy(value, add_array(layout(value).type), -1);
    Storage& storage = storage_of(value);
    if (!given && storage.kind != Storage::kOutput) {
      storage.kind = Storage::kOutput;
      storage.index = int32_t(plan_->fresh.size());
      if (const int32_t at = left_[plan_->outputs.size()]; at >= 0)
        choose_place(storage, plan_->options.left, size_t(at));
      plan_->fresh.push_back({values_[size_t(value)].storage, values_[size_t(value)].layout});
    }
    return {values_[size_t(value)].storage, values_[size_t(value)].layout, values_[size_t(value)].root};
  }

  // The block of memory that other plans share ------------------------------------------------------------------------
  //
  std::vector<int32_t> left_;  // by output: its position among the members of PlanOptions::left, or -1

  static void choose_place(Storage& storage, const ValueBlock& block, size_t at) {
    storage.in_block = true;
    storage.offset = block.offsets[at].count();
  }
  void place_inputs() {
    const ValueBlock& block = plan_->options.consumed;
    for (size_t k = 0; k < block.members.size(); ++k) choose_place(plan_->storages[size_t(block.members[k])], block, k);
  }
  // Members live from their first write on, or up to their last use.
  void place_in_block() {
    std::vector<ArenaBlock> members, others;
    std::vector<Storage*> owners;
    for (Storage& s : plan_->storages) {
      if (s.in_block && (s.kind == Storage::kOutput || s.last >= 0)) {
        members.push_back({s.bytes, std::max(s.first, 0), s.last, Bytes(s.offset)});
      } else if (s.kind == Storage::kArena && s.first >= 0 && s.bytes >= kLargeBytes && !s.pinned &&
                 s.device.is_cpu()) {
        others.push_back({s.bytes, s.first, s.last});
        owners.push_back(&s);
      }
    }
    const std::vector<bool> fits = place_between(members, plan_->block_bytes(), others);
    for (size_t i = 0; i < others.size(); ++i) {
      if (!fits[i]) continue;
      owners[i]->in_block = true;
      owners[i]->arena = Storage::kBlock;
      owners[i]->offset = others[i].offset.count();
    }
  }

  // Memory ----------------------------------------------------------------------------------------------------------
  void find_lifetimes() {
    for (size_t s = 0; s < drafts_.size(); ++s) {
      for (int32_t v : drafts_[s].out) {
        Storage& storage = storage_of(v);
        storage.first = storage.last = int32_t(s);
      }
      for (int32_t v : drafts_[s].in)
        if (v >= 0) storage_of(v).last = int32_t(s);
      for (int32_t v : drafts_[s].scratch) storage_of(v).first = storage_of(v).last = int32_t(s);
    }
    for (Storage& s : plan_->storages)
      if (s.kind == Storage::kOutput) s.last = int32_t(drafts_.size());
  }

  // A step may write over an operand that no later step reads. The two storages become one.
  void share_in_place() {
    for (size_t s = 0; s < drafts_.size(); ++s) {
      const Draft& d = drafts_[s];
      if (d.commit || d.control) continue;
      for (size_t i = 0; i < d.out.size(); ++i) share_output(d, i, int32_t(s));
    }
    // No later step reads a storage that has become part of another one, so the other values in it can move at once.
    std::vector<int32_t> now(plan_->storages.size());
    std::iota(now.begin(), now.end(), 0);
    for (size_t k = merged_.size(); k-- > 0;) now[size_t(merged_[k].first)] = now[size_t(merged_[k].second)];
    for (PlanValue& v : values_) v.storage = now[size_t(v.storage)];
  }
  void share_output(const Draft& d, size_t out, int32_t step) {
    if (d.fused) {
      if (!fills_space(*d.body, layout(d.out[out]).type.shape)) return;
    } else if (d.op->has(kInPlace)) {
      const size_t in = rewritten_input(*d.op, d.in.size(), out);
      if (may_share(d, in, out, step, false)) merge(d, in, out);
      return;
    } else if (!d.op->has(kPointwise)) {
      return;
    }
    for (size_t in = 0; in < d.in.size(); ++in)
      if (may_share(d, in, out, step, !d.fused)) return merge(d, in, out);
  }
  // `twice`: the step may read the same value through several operands.
  bool may_share(const Draft& d, size_t in, size_t out, int32_t step, bool twice) {
    if (in >= d.in.size() || d.in[in] < 0) return false;
    const int32_t from = values_[size_t(d.in[in])].storage;
    const Storage& s = plan_->storages[size_t(from)];
    if (s.kind != Storage::kArena || s.last != step || s.first >= step || s.bytes == Bytes() ||
        !covers_storage(d.in[in]))
      return false;
    const Type &a = layout(d.in[in]).type, &b = layout(d.out[out]).type;
    const bool fits =
        d.fused ? a.shape == b.shape && size_of(a.dtype) == size_of(b.dtype) && a.device == b.device : a == b;
    if (!fits) return false;
    for (int32_t v : d.out)
      if (values_[size_t(v)].storage == from) return false;  // taken by another output
    if (s.pinned && storage_of(d.out[out]).kind == Storage::kOutput && !plan_->options.body) return false;
    for (size_t k = 0; k < d.in.size(); ++k)
      if (k != in && d.in[k] >= 0 && values_[size_t(d.in[k])].storage == from && !(twice && d.in[k] == d.in[in]))
        return false;
    return true;
  }
  void merge(const Draft& d, size_t in, size_t out) {
    const int32_t from = values_[size_t(d.in[in])].storage, to = values_[size_t(d.out[out])].storage;
    keeps_source_ = true;
    plan_->storages[size_t(to)].first = plan_->storages[size_t(from)].first;
    plan_->storages[size_t(to)].pinned |= plan_->storages[size_t(from)].pinned;
    for (int32_t v : d.in)
      if (v >= 0 && values_[size_t(v)].storage == from) values_[size_t(v)].storage = to;
    merged_.emplace_back(from, to);
    plan_->storages[size_t(from)].bytes = {};
    plan_->storages[size_t(from)].first = plan_->storages[size_t(from)].last = -1;
  }

  std::vector<std::pair<int32_t, int32_t>> merged_;  // storages and what they became part of, in the order of steps

  void place_storages() {
    for (size_t s = 0; s < plan_->storages.size(); ++s) {
      Storage& storage = plan_->storages[s];
      if (storage.kind != Storage::kArena || storage.first < 0 || storage.in_block) continue;
      storage.arena = arena_of(storage.device);
    }
    for (size_t a = 0; a < plan_->arenas.size(); ++a) place_arena(int32_t(a));
  }
  int32_t arena_of(Device device) {
    auto& all = plan_->arenas;
    for (size_t a = 0; a < all.size(); ++a)
      if (all[a].device == device) return int32_t(a);
    all.push_back({device});
    return int32_t(all.size()) - 1;
  }
  void place_arena(int32_t arena) {
    std::vector<ArenaBlock> blocks;
    std::vector<size_t> owners;
    for (size_t s = 0; s < plan_->storages.size(); ++s) {
      const Storage& storage = plan_->storages[s];
      if (storage.kind != Storage::kArena || storage.first < 0 || storage.arena != arena) continue;
      blocks.push_back({storage.bytes, storage.first, storage.last});
      owners.push_back(s);
    }
    plan_->arenas[size_t(arena)].bytes = place_blocks(blocks);
    plan_->arenas[size_t(arena)].lower_bound = arena_lower_bound(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) plan_->storages[owners[i]].offset = blocks[i].offset.count();
  }

  // Steps -----------------------------------------------------------------------------------------------------------
  int32_t emit_view(int32_t value) {
    if (value < 0) {
      plan_->views.emplace_back();
      plan_->slots.emplace_back();
    } else {
      const Array& a = layout(value);
      plan_->views.push_back({&a.type, &a.strides, nullptr});
      const PlanValue& v = values_[size_t(value)];
      plan_->slots.push_back({v.storage, a.offset * size_of(a.type.dtype), values_[size_t(v.root)].view});
    }
    return int32_t(plan_->views.size()) - 1;
  }
  std::vector<char> donors_;  // by storage: another one takes its memory

  void emit() {
    donors_.resize(plan_->storages.size());
    for (const Storage& s : plan_->storages)
      if (s.donor >= 0) donors_[size_t(s.donor)] = true;
    for (size_t s = 0; s < drafts_.size(); ++s) {
      const Draft& d = drafts_[s];
      Step step{
          .op = d.op, .kernel = d.kernel, .fused = d.fused.get(), .body = d.body, .attrs = d.attrs, .line = d.line};
      step.device = d.device;
      if (!host_reads(d.device) && d.line >= 0)
        step.place = kept_place(error_at(plan_->lines[size_t(d.line)], std::string(d.op->name) + ": "));
      if (d.fused) plan_->fused.push_back(d.fused);
      step.in = int32_t(plan_->views.size()), step.in_count = int32_t(d.in.size());
      Bytes bytes;
      for (int32_t v : d.in) {
        emit_view(v);
        if (v >= 0) bytes += bytes_of(layout(v).type);
      }
      step.out = int32_t(plan_->views.size()), step.out_count = int32_t(d.out.size());
      for (int32_t v : d.out) {
        values_[size_t(v)].view = emit_view(v);
        bytes += bytes_of(layout(v).type);
      }
      step.poll = int32_t(s) <= plan_->commit && (s % 16 == 0 || bytes > kPollBytes);
      emit_scratch(d, step);
      if (d.prepared) emit_prepared(d, step);
      if (d.control)
        emit_control(drafts_[s], step);
      else
        add_random(step, int32_t(s));
      plan_->steps.push_back(step);
    }
    for (PlanOutput& o : plan_->outputs) o.written = values_[size_t(o.written)].view;
    for (PlanValue& v : values_) plan_->layouts.push_back(std::move(v.layout));
    plan_->frames = std::make_unique<FramePool>(*plan_);
    if (!plan_->options.body) find_simultaneous(*plan_);
    find_segments(*plan_);
    if (keeps_source_) plan_->source = std::make_shared<const Graph>(graph_);
    trim();
  }
  void trim() {  // a program may keep hundreds of plans
    const auto trimmed = [](auto&... list) { (list.shrink_to_fit(), ...); };
    trimmed(plan_->steps, plan_->storages, plan_->views, plan_->slots, plan_->layouts, plan_->attributes,
            plan_->input_types, plan_->outputs, plan_->fresh, plan_->immediates, plan_->prepared, plan_->packs);
  }
  void emit_scratch(const Draft& d, Step& step) {
    step.scratch_count = int32_t(d.scratch.size());
    if (!d.scratch.empty()) step.scratch = int32_t(plan_->views.size());
    for (int32_t v : d.scratch) emit_view(v);
  }
  void emit_prepared(const Draft& d, Step& step) {
    step.prepared = d.prepared.get();
    plan_->prepared.push_back(d.prepared);
    const int packed = d.prepared->packed_input;
    if (packed < 0 || is_changing(d.in[size_t(packed)])) return;
    if (donors_[size_t(values_[size_t(d.in[size_t(packed)])].storage)]) return;  // changes at every run
    step.pack = int32_t(plan_->packs.size());
    plan_->packs.push_back({step.in + packed, d.prepared});
  }
  void emit_control(Draft& d, Step& step) {
    step.control = d.control.get();
    plan_->controls.push_back(std::move(d.control));
  }
  void add_random(Step& step, int32_t index) {
    if (step.fused || step.op->random_attr < 0) return;
    const auto* key = std::get_if<RandomKey>(&(*step.attrs)[size_t(step.op->random_attr)]);
    if (!key) return;
    step.random = int32_t(plan_->random.size());
    plan_->random.push_back({index, key->seed, key->tick});
  }
};

bool& verify_flag() {
#ifdef NDEBUG
  static bool on = switched_on("PERIGEE_VERIFY_PLANS");
#else
  static bool on = true;
#endif
  return on;
}

}  // namespace

Plan::Plan()
    : serial([] {
        static std::atomic<uint64_t> made = 0;
        return ++made;
      }()) {}
Plan::~Plan() = default;

Bytes Plan::arena_bytes() const {
  Bytes total;
  for (const Arena& a : arenas) total += a.bytes;
  return total;
}
size_t Plan::held_bytes() const { return frames->held_bytes(); }

const Plan& Plan::node_by_node() const {
  if (!source) return *this;
  std::call_once(once_, [this] {
    PlanOptions plain = options;
    plain.fuse = plain.in_place = false;
    node_by_node_ = make_plan(*source, plain);
  });
  return *node_by_node_;
}

void verify_plans(bool on) { verify_flag() = on; }

std::shared_ptr<const Plan> make_plan(const Graph& specialized, const PlanOptions& options) {
  check_body_depth();
  std::shared_ptr<const Plan> plan = Planner(specialized, options).build();
  if (verify_flag()) verify(*plan);
  return plan;
}

}  // namespace pg
