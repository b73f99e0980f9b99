// Frames: what one run of a plan writes to besides its outputs. Runs at the same time take different ones.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "graph/exec/pack.h"
#include "graph/plan/plan.h"

namespace pg {

struct Frame {
  std::vector<View> views;          // Plan::views with pointers
  std::vector<char*> bases;         // where each storage starts
  std::vector<Ref<Buffer>> arenas;  // none while the frame rests without memory
  std::vector<Attrs> attrs;         // of random steps, with the keys of this run
  std::vector<PackSlot> packs;      // one for each of Plan::packs
  std::vector<Ref<Buffer>> stacks;  // of storages of kind kStack
};

class FramePool {
 public:
  explicit FramePool(const Plan& plan);
  ~FramePool();

  // A frame whose arenas, constants and immediates are in place. Throws OutOfMemory.
  std::unique_ptr<Frame> take();
  // Frames keep their arenas. When all plans together hold more than a limit, those used least recently give theirs
  // back.
  void give(std::unique_ptr<Frame> frame);

  // Gives the frame of a body its memory: where each of the plan's arenas is.
  void place_arenas(Frame& frame, std::span<char* const> arenas) const;

  // Points the views of a storage to `base`.
  void patch(Frame& frame, int32_t storage, char* base) const {
    if (frame.bases[size_t(storage)] == base) return;
    frame.bases[size_t(storage)] = base;
    for (int32_t i = starts_[size_t(storage)]; i < starts_[size_t(storage) + 1]; ++i) {
      const int32_t view = views_[size_t(i)];
      frame.views[size_t(view)].data = base + plan_.slots[size_t(view)].offset;
    }
  }

  // Sees to it that pack i of the frame holds the array that its view shows, if that pays. `source` is the array's
  // buffer; null if it is not to be kept.
  void refresh_pack(Frame& frame, size_t i, const Ref<Buffer>& source) const {
    const PackedInput& p = plan_.packs[i];
    frame.packs[i].refresh(p.kernel, frame.views[size_t(p.view)], source);
  }

  size_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<Frame> make() const;
  void attach(Frame& frame);  // allocates the arenas
  void detach(Frame& frame);
  std::vector<Ref<Buffer>> allocate() const;
  void rest();                              // gives the arenas of all frames back that do not run
  void keep(std::unique_ptr<Frame> frame);  // under the lock; takes no memory
  static void trim(const FramePool* keep, size_t limit);

  const Plan& plan_;
  std::vector<int32_t> starts_, views_;  // views by storage
  std::atomic<Frame*> ready_{nullptr};   // one frame without a lock
  std::mutex lock_;
  std::vector<std::unique_ptr<Frame>> resting_;
  std::atomic<size_t> held_{0};
  std::atomic<uint64_t> last_use_{0};
};

// Bytes that the arenas of all frames hold, and how many they may hold besides those of the plan that runs.
size_t held_arena_bytes();
void limit_held_arenas(size_t bytes);
}  // namespace pg
