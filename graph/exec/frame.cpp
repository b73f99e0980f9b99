#include "graph/exec/frame.h"

#include <algorithm>

#include "tensor/context.h"

namespace pg {
namespace {

constexpr size_t kMaxResting = 16;

// The pools of a runtime, so that the one used least recently can free its memory.
struct Pools {
  std::atomic<size_t> held{0}, limit{size_t(256) << 20};  // bytes of arenas
  std::atomic<uint64_t> uses{0};
  std::mutex lock;
  std::vector<FramePool*> all;
};
PerRuntime<Pools> pools;

std::shared_ptr<KeptResults> kept_results_of(const Plan& plan) {
  if (plan.invariant == 0) return nullptr;
  if (plan.options.shelf) return plan.options.shelf->find(plan.invariant_steps, plan.sources.size());
  return std::make_shared<KeptResults>(plan.sources.size());
}

}  // namespace

void limit_held_arenas(size_t bytes) { pools.of(Runtime::current()).limit = bytes; }

FramePool::FramePool(const Plan& plan)
    : plan_(plan),
      runtime_(&Runtime::current()),
      kept_(kept_results_of(plan)),
      starts_(plan.storages.size() + 1, 0),
      views_(plan.views.size()) {
  for (const Slot& s : plan.slots)
    if (s.storage >= 0) ++starts_[size_t(s.storage) + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
  for (size_t v = 0; v < plan.slots.size(); ++v)
    if (plan.slots[v].storage >= 0) views_[size_t(next[size_t(plan.slots[v].storage)]++)] = int32_t(v);
  resting_.reserve(kMaxResting);
  Pools& mine = pools.of(*runtime_);
  const std::lock_guard hold(mine.lock);
  mine.all.push_back(this);
}

FramePool::~FramePool() {
  {
    Pools& mine = pools.of(*runtime_);
    const std::lock_guard hold(mine.lock);
    std::erase(mine.all, this);
  }
  rest();
}

void FramePool::trim(size_t limit) const {
  Pools& mine = pools.of(*runtime_);
  const std::lock_guard hold(mine.lock);
  const auto last_use = [](const FramePool* pool) { return pool->last_use_.load(std::memory_order_relaxed); };
  for (uint64_t after = 0; mine.held > limit;) {
    FramePool* oldest = nullptr;
    for (FramePool* pool : mine.all) {
      if (pool == this || pool->held_bytes() == 0 || last_use(pool) <= after) continue;
      if (!oldest || last_use(pool) < last_use(oldest)) oldest = pool;
    }
    if (!oldest) return;
    after = last_use(oldest);
    oldest->rest();
  }
}

void FramePool::rest() {
  std::unique_ptr<Frame> frame(ready_.exchange(nullptr, std::memory_order_acquire));
  std::lock_guard hold(lock_);
  if (frame) keep(std::move(frame));
  for (auto& f : resting_) detach(*f);
}

std::unique_ptr<Frame> FramePool::take() {
  std::atomic<uint64_t>& uses = pools.of(*runtime_).uses;
  const uint64_t now = uses.load(std::memory_order_relaxed) + 1;  // threads may lose a count, which is harmless
  uses.store(now, std::memory_order_relaxed);
  last_use_.store(now, std::memory_order_relaxed);
  std::unique_ptr<Frame> frame(ready_.exchange(nullptr, std::memory_order_acquire));
  if (!frame) {
    std::lock_guard hold(lock_);
    if (!resting_.empty()) {
      frame = std::move(resting_.back());
      resting_.pop_back();
    }
  }
  if (!frame) frame = make();
  if (!plan_.options.body && frame->arenas.size() != plan_.arenas.size()) attach(*frame);
  return frame;
}

void FramePool::give(std::unique_ptr<Frame> frame) {
  for (Ref<Buffer>& stack : frame->stacks) stack = {};
  frame->kept = nullptr;  // a frame that rests long would hold old parameters
  if (!plan_.options.static_alloc) detach(*frame);
  Frame* expected = nullptr;
  if (ready_.compare_exchange_strong(expected, frame.get(), std::memory_order_release, std::memory_order_relaxed)) {
    (void)frame.release();
    return;
  }
  std::lock_guard hold(lock_);
  keep(std::move(frame));
}

void FramePool::keep(std::unique_ptr<Frame> frame) {
  if (resting_.size() < kMaxResting) return resting_.push_back(std::move(frame));
  detach(*frame);
}

std::unique_ptr<Frame> FramePool::make() const {
  auto frame = std::make_unique<Frame>();
  frame->views = plan_.views;
  frame->bases.assign(plan_.storages.size(), nullptr);
  frame->packs.resize(plan_.packs.size());
  frame->stacks.resize(size_t(plan_.stacks));
  for (const RandomStep& r : plan_.random) frame->attrs.push_back(*plan_.steps[size_t(r.step)].attrs);
  for (size_t s = 0; s < plan_.storages.size(); ++s) {
    const Storage& storage = plan_.storages[s];
    if (storage.kind != Storage::kConstant && storage.kind != Storage::kImmediate) continue;
    const auto& values = storage.kind == Storage::kConstant ? plan_.constants : plan_.immediates;
    patch(*frame, int32_t(s), static_cast<char*>(values[size_t(storage.index)].array().data()));
  }
  return frame;
}

void FramePool::place_arenas(Frame& frame, std::span<char* const> arenas) const {
  for (size_t s = 0; s < plan_.storages.size(); ++s) {
    const Storage& storage = plan_.storages[s];
    if (storage.kind == Storage::kArena && storage.first >= 0 && !storage.in_block)
      patch(frame, int32_t(s), arenas[size_t(storage.arena)] + storage.offset);
  }
}

void FramePool::place_block(Frame& frame, char* block) const {
  for (size_t s = 0; s < plan_.storages.size(); ++s) {
    const Storage& storage = plan_.storages[s];
    if (storage.kind == Storage::kArena && storage.in_block) patch(frame, int32_t(s), block + storage.offset);
  }
}

std::vector<Ref<Buffer>> FramePool::allocate() const {
  std::vector<Ref<Buffer>> arenas;
  for (const Arena& a : plan_.arenas) {
    try {
      arenas.push_back(Buffer::allocate(a.device, a.bytes));
    } catch (const OutOfMemory&) {
      if (allocation_failed()) throw;  // a test injected the failure
      trim(0);
      arenas.push_back(Buffer::allocate(a.device, a.bytes));
    }
  }
  return arenas;
}

void FramePool::attach(Frame& frame) {
  std::vector<Ref<Buffer>> arenas = allocate();
  SmallVector<char*, 2> bases;
  for (const Ref<Buffer>& arena : arenas) bases.push_back(static_cast<char*>(arena->data));
  place_arenas(frame, bases);
  frame.arenas = std::move(arenas);
  held_ += plan_.arena_bytes().count();
  Pools& mine = pools.of(*runtime_);
  mine.held += plan_.arena_bytes().count();
  if (mine.held > mine.limit) trim(mine.limit);
}

void FramePool::detach(Frame& frame) {
  frame.staged.clear();
  if (frame.arenas.empty()) return;
  frame.arenas.clear();
  held_ -= plan_.arena_bytes().count();
  pools.of(*runtime_).held -= plan_.arena_bytes().count();
}

}  // namespace pg
