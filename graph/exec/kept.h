// Results of the invariant steps of a plan. They depend only on inputs that most runs find unchanged, as parameters
// are, so they are computed once for each set of these arrays: scaled weights, merged adapters, sums of biases.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/buffer.h"

namespace pg {

// What one run has computed. Published results hold the buffers of their sources, so these cannot be rewritten in
// place. A change makes a new buffer, which shows that the results are out of date.
struct Kept {
  std::vector<const void*> data;          // elements of the sources
  std::vector<Ref<Buffer>> sources;       // by entry of Plan::sources; empty: the results hold for one run only
  std::vector<Ref<Buffer>> values;        // by entry of Plan::kept
  mutable std::atomic<uint32_t> runs{0};  // that used the results
};

// The published results of a plan. Sources are held once `needed_` runs in a row have seen them. If that did not pay,
// more runs are needed the next time; once it does, as few as at first.
class KeptResults {
 public:
  explicit KeptResults(size_t sources) : seen_(sources) {}
  std::shared_ptr<const Kept> newest() const;
  // Called after a run that computed the results, with all their sources. Publishes them, or drops their sources.
  // Allocates nothing.
  void offer(const std::shared_ptr<Kept>& made);

 private:
  mutable std::mutex lock_;
  std::shared_ptr<const Kept> newest_;
  std::vector<const void*> seen_;
  static constexpr uint32_t kFewestNeeded = 2;
  uint32_t runs_ = 0, needed_ = kFewestNeeded;
};

// The results of the plans of a program. Plans whose invariant steps are the same share them, so that inputs of other
// sizes do not cost another copy of all weights.
class KeptShelf {
 public:
  // steps: a text that is the same for the same steps.
  std::shared_ptr<KeptResults> find(const std::string& steps, size_t sources);

 private:
  std::mutex lock_;
  std::map<std::string, std::weak_ptr<KeptResults>> all_;
};

}  // namespace pg
