// Program: a trace and its plans for the types that it has met. A run is a single entry on the tape.
#pragma once
#include <mutex>
#include <random>

#include "graph/exec/exec.h"
#include "graph/ir/history.h"
#include "graph/specialize/specialize.h"

namespace pg {

// Whether the trace opens a recording scope or takes gradients, so that it depends on which inputs gradients flow to.
bool reads_flows(const Graph& trace);

class Program : public RefCounted<Program> {
 public:
  struct Options {
    std::string name = "graph";
    bool static_alloc = true;
    bool static_shape = false;                   // a second set of types is an error
    std::vector<int32_t> lendable = {};          // as PlanOptions::lendable, for runs that are not recorded
    std::vector<Replacement> replacements = {};  // as PlanOptions::replacements, for runs that are not recorded
    std::vector<int32_t> lasting = {};           // inputs that are the same array in most runs that are not recorded
  };

  Program(Graph trace, std::vector<Ref<Generator>> generators, Options options);
  static void destroy(Program* program) { delete program; }

  const Graph& trace() const { return *trace_; }
  const Options& options() const { return options_; }
  size_t specializations() const;
  size_t arena_bytes() const;  // of all specializations

  // Runs on the inputs, and advances the generators. Records the run if ctx.recording is set and gradients flow to an
  // input. An input whose only reference the caller moved in may be rewritten (see graph/exec/exec.h). Throws Retrace
  // on a guard failure. If run throws, nothing has changed. `spare`: as for the function run in graph/exec/exec.h.
  Values run(Context& ctx, std::span<Value> inputs, const Spare* spare = nullptr);
  // The same with the given states of generators at the start, and without advancing them. Several threads may call it
  // at once, each with its own context.
  Values run_with(Context& ctx, std::span<Value> inputs, std::span<const RandomKey> states,
                  const Spare* spare = nullptr);
  // The same without recording, with the outputs in `out`. targets: as for the function run in graph/exec/exec.h.
  void run_into(Context& ctx, std::span<Value> inputs, std::span<const RandomKey> states,
                std::span<const Value> targets, Values& out);
  std::span<const Ref<Generator>> generators() const { return generators_; }

  // Returns the optimized program for the types of the last run (forward only), or the trace if there was no run.
  Graph optimized() const;

 private:
  struct Entry;
  std::shared_ptr<Entry> find(Context& ctx, std::span<const Value> inputs);
  std::shared_ptr<Entry> make(Context& ctx, std::span<const Value> inputs);
  bool too_many() const;
  bool records(const Context& ctx, std::span<const Value> inputs) const;
  struct Run;
  static Values backward(Context& ctx, Run& run, TapeNode& node, std::span<const Value> cotangents);
  static Values all_gradients(Context& ctx, const Run& run, const TapeNode& node, std::span<const Value> cotangents);

  // By output of the trace: the inputs and returned leaves that its history goes back to.
  const std::vector<std::vector<Origin>>& histories() const;
  struct Recorded;
  Values link_leaves(Values& out) const;
  Recorded outputs_to_record(Context& ctx, const Entry& entry, std::span<const Value> inputs) const;

  std::shared_ptr<const Graph> trace_;
  mutable std::once_flag histories_made_;
  mutable std::vector<std::vector<Origin>> histories_;
  std::vector<Ref<Generator>> generators_;
  Options options_;
  std::shared_ptr<KeptShelf> shelf_;
  std::vector<int32_t> leaves_;  // that the trace returns: see returned_leaves
  bool reads_flows_ = false;     // whether the trace depends on which inputs gradients flow to
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // most recently used first
  std::minstd_rand dropped_;
};

}  // namespace pg
