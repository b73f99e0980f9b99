#include "graph/exec_frame.h"

#include "tensor/context.h"

namespace pg {
namespace {

constexpr size_t kMaxResting = 16;
std::atomic<size_t> all_held{0};
std::atomic<size_t> held_limit{size_t(256) << 20};

}  // namespace

size_t held_arena_bytes() { return all_held.load(std::memory_order_relaxed); }
void limit_held_arenas(size_t bytes) { held_limit.store(bytes, std::memory_order_relaxed); }

FramePool::FramePool(const Plan& plan) : plan_(plan), starts_(plan.storages.size() + 1, 0), views_(plan.views.size()) {
  for (const Slot& s : plan.slots)
    if (s.storage >= 0) ++starts_[size_t(s.storage) + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
  for (size_t v = 0; v < plan.slots.size(); ++v)
    if (plan.slots[v].storage >= 0) views_[size_t(next[size_t(plan.slots[v].storage)]++)] = int32_t(v);
}

FramePool::~FramePool() {
  if (Frame* frame = ready_.exchange(nullptr)) resting_.emplace_back(frame);
  for (auto& frame : resting_) detach(*frame);
}

std::unique_ptr<Frame> FramePool::take() {
  std::unique_ptr<Frame> frame(ready_.exchange(nullptr, std::memory_order_acquire));
  if (!frame) {
    std::lock_guard hold(lock_);
    if (!resting_.empty()) {
      frame = std::move(resting_.back());
      resting_.pop_back();
    }
  }
  if (!frame) frame = make();
  if (frame->arenas.size() != plan_.arenas.size()) attach(*frame);
  return frame;
}

void FramePool::give(std::unique_ptr<Frame> frame) {
  if (!may_keep(*frame)) detach(*frame);
  Frame* expected = nullptr;
  if (ready_.compare_exchange_strong(expected, frame.get(), std::memory_order_release, std::memory_order_relaxed)) {
    (void)frame.release();
    return;
  }
  std::lock_guard hold(lock_);
  if (resting_.size() < kMaxResting) return resting_.push_back(std::move(frame));
  detach(*frame);
}

bool FramePool::may_keep(const Frame&) const {
  return plan_.options.static_alloc && all_held.load(std::memory_order_relaxed) <= held_limit.load(std::memory_order_relaxed);
}

std::unique_ptr<Frame> FramePool::make() const {
  auto frame = std::make_unique<Frame>();
  frame->views = plan_.views;
  frame->bases.assign(plan_.storages.size(), nullptr);
  frame->packs.resize(plan_.packs.size());
  for (const RandomStep& r : plan_.random) frame->attrs.push_back(*plan_.steps[size_t(r.step)].attrs);
  for (size_t s = 0; s < plan_.storages.size(); ++s) {
    const Storage& storage = plan_.storages[s];
    if (storage.kind != Storage::kConstant && storage.kind != Storage::kImmediate) continue;
    const auto& values = storage.kind == Storage::kConstant ? plan_.constants : plan_.immediates;
    patch(*frame, int32_t(s), static_cast<char*>(values[size_t(storage.index)].array().data()));
  }
  return frame;
}

void FramePool::attach(Frame& frame) {
  std::vector<Ref<Buffer>> arenas;
  for (const Arena& a : plan_.arenas) arenas.push_back(Buffer::allocate(a.device, a.bytes));
  for (size_t s = 0; s < plan_.storages.size(); ++s) {
    const Storage& storage = plan_.storages[s];
    if (storage.kind != Storage::kArena || storage.first < 0) continue;
    patch(frame, int32_t(s), static_cast<char*>(arenas[size_t(storage.arena)]->data) + storage.offset);
  }
  frame.arenas = std::move(arenas);
  held_ += plan_.arena_bytes();
  all_held += plan_.arena_bytes();
}

void FramePool::detach(Frame& frame) {
  if (frame.arenas.empty()) return;
  frame.arenas.clear();
  held_ -= plan_.arena_bytes();
  all_held -= plan_.arena_bytes();
}

}  // namespace pg
