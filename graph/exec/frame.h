// Frames: what a run of a plan writes to, except for its outputs. Concurrent runs use different frames.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "graph/exec/kept.h"
#include "graph/exec/pack.h"
#include "graph/plan/plan.h"
#include "tensor/device_table.h"
#include "tensor/runtime.h"

namespace pg {

// The program of a segment.
struct SegmentProgram {
  std::unique_ptr<CapturedWork> work;  // a piece for each step
  std::vector<char*> bases;            // those that its pieces were captured for
  std::vector<char*> last;             // those of the last run
  bool refused = false;                // the device cannot run it
};

// An input of Plan::staged. It is copied once it has come at two addresses.
struct StagedInput {
  const char* last = nullptr;
  Ref<Buffer> copy;
};

struct Frame {
  std::vector<View> views;               // Plan::views with pointers
  std::vector<char*> bases;              // start of each storage
  std::vector<Ref<Buffer>> arenas;       // empty while the frame rests without memory
  std::vector<Attrs> attrs;              // of random steps, with the keys of this run
  std::vector<PackSlot> packs;           // one per entry of Plan::packs
  std::vector<Ref<Buffer>> stacks;       // for storages of kind kStack
  std::shared_ptr<const Kept> kept;      // the results of invariant steps, during a run
  bool kept_before = false;              // an earlier run computed them
  std::vector<int64_t> took;             // nanoseconds of each step, as measured in jobs
  std::vector<SegmentProgram> programs;  // one per entry of Plan::segments
  std::vector<StagedInput> staged;       // by input, if the plan stages any
};

class FramePool {
 public:
  explicit FramePool(const Plan& plan);
  ~FramePool();

  // Returns a frame whose arenas, constants and immediates are set. Throws OutOfMemory.
  std::unique_ptr<Frame> take();
  // Returns a frame to the pool. Frames keep their arenas. If all plans together hold more than a limit, the plans used
  // least recently free theirs.
  void give(std::unique_ptr<Frame> frame);

  // Sets the memory of a body's frame: the start of each of the plan's arenas.
  void place_arenas(Frame& frame, std::span<char* const> arenas) const;
  // Sets the start of the block that the plan shares with another one.
  void place_block(Frame& frame, char* block) const;

  // Sets the start of a storage, and the pointers of its views.
  void patch(Frame& frame, int32_t storage, char* base) const {
    if (frame.bases[size_t(storage)] == base) return;
    frame.bases[size_t(storage)] = base;
    for (int32_t i = starts_[size_t(storage)]; i < starts_[size_t(storage) + 1]; ++i) {
      const int32_t view = views_[size_t(i)];
      frame.views[size_t(view)].data = base + plan_.slots[size_t(view)].offset;
    }
  }

  // Packs the array that the view of pack i shows, if that pays. `source` is the array's buffer, or null if the buffer
  // must not be kept.
  void refresh_pack(Frame& frame, size_t i, const Ref<Buffer>& source) const {
    const PackedInput& p = plan_.packs[i];
    frame.packs[i].refresh(p.kernel, frame.views[size_t(p.view)], source);
  }

  void pack_once(Frame& frame, size_t i) const {
    const PackedInput& p = plan_.packs[i];
    frame.packs[i].pack_once(*p.kernel, frame.views[size_t(p.view)]);
  }

  // Shows the results of invariant steps.
  void show_kept(Frame& frame, std::shared_ptr<const Kept> kept) const {
    frame.kept = std::move(kept);
    for (size_t i = 0; i < plan_.kept.size(); ++i)
      patch(frame, plan_.kept[i], static_cast<char*>(frame.kept->values[i]->data));
  }
  KeptResults& kept_results() { return *kept_; }

  size_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<Frame> make() const;
  void attach(Frame& frame);  // allocates the arenas
  void detach(Frame& frame);
  std::vector<Ref<Buffer>> allocate() const;
  void rest();                              // frees the arenas of all frames that do not run
  void keep(std::unique_ptr<Frame> frame);  // requires the lock; allocates nothing
  void trim(size_t limit) const;            // frees arenas of other pools of the runtime

  const Plan& plan_;
  const Ref<Runtime> runtime_;
  const std::shared_ptr<KeptResults> kept_;  // null without invariant steps
  std::vector<int32_t> starts_, views_;      // views by storage
  std::atomic<Frame*> ready_{nullptr};       // one frame that can be taken without the lock
  std::mutex lock_;
  std::vector<std::unique_ptr<Frame>> resting_;
  std::atomic<size_t> held_{0};
  std::atomic<uint64_t> last_use_{0};
};

// Limits the bytes that the arenas of all frames of the current runtime hold. Arenas of a plan that is running are not
// freed.
void limit_held_arenas(size_t bytes);
}  // namespace pg
