#include "graph/exec/kept.h"

#include <algorithm>

namespace pg {
namespace {

constexpr uint32_t kEnoughRuns = 4, kMostNeeded = 4096;

}  // namespace

std::shared_ptr<const Kept> KeptResults::newest() const {
  const std::lock_guard hold(lock_);
  return newest_;
}

void KeptResults::offer(const std::shared_ptr<Kept>& made) {
  std::shared_ptr<const Kept> old;  // released after the lock
  const std::lock_guard hold(lock_);
  if (newest_ && newest_->sources == made->sources) return made->sources.clear();  // another thread was faster
  if (newest_) needed_ = newest_->runs < kEnoughRuns ? std::min(needed_ * 4, kMostNeeded) : kFewestNeeded;
  old = std::move(newest_);
  if (seen_ != made->data) runs_ = 0;
  std::copy(made->data.begin(), made->data.end(), seen_.begin());
  const bool stays = std::all_of(made->sources.begin(), made->sources.end(), [](const auto& s) { return bool(s); });
  if (!stays || ++runs_ < needed_) return made->sources.clear();
  runs_ = 0;
  newest_ = made;
}

std::shared_ptr<KeptResults> KeptShelf::find(const std::string& steps, size_t sources) {
  const std::lock_guard hold(lock_);
  std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<KeptResults>& place = all_[steps];
  if (auto there = place.lock()) return there;
  auto made = std::make_shared<KeptResults>(sources);
  place = made;
  return made;
}

}  // namespace pg
