#include "graph/exec/pack.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pg {
namespace {

constexpr size_t kLimit = size_t(1) << 30;
constexpr uint32_t kEnoughRuns = 16, kMostNeeded = 4096;
std::atomic<size_t> held{0};

// All packed arrays, by array. The registry keeps nothing alive.
struct Registry {
  std::mutex lock;
  std::unordered_multimap<const void*, std::weak_ptr<const Packed>> all;
};
Registry& known() {
  static Registry* instance = new Registry;
  return *instance;
}

std::shared_ptr<const Packed> find(const PreparedKernel& kernel, const void* data) {
  std::vector<std::shared_ptr<const Packed>> candidates;  // released after the lock
  const std::lock_guard hold(known().lock);
  const auto [begin, end] = known().all.equal_range(data);
  for (auto it = begin; it != end; ++it)
    if (auto packed = it->second.lock()) {
      candidates.push_back(packed);
      if (packed->kernel->packs_like(kernel)) return packed;
    }
  return nullptr;
}

std::shared_ptr<const Packed> pack(const std::shared_ptr<const PreparedKernel>& kernel, const View& view,
                                   const Ref<Buffer>& source) {
  if (auto there = find(*kernel, view.data)) return there;
  if (held_packed_bytes() + kernel->packed_bytes > kLimit) return nullptr;
  auto made = std::make_shared<Packed>();
  made->data = view.data;
  made->kernel = kernel;
  made->source = source;
  made->bytes = Buffer::allocate(Device{}, Bytes(kernel->packed_bytes));
  held += made->bytes->bytes;
  kernel->pack(view, made->bytes->data);
  const std::lock_guard hold(known().lock);
  known().all.emplace(view.data, made);
  return made;
}

}  // namespace

size_t held_packed_bytes() { return held.load(std::memory_order_relaxed); }

Packed::~Packed() {
  if (bytes) held -= bytes->bytes;
  const std::lock_guard hold(known().lock);
  auto [it, end] = known().all.equal_range(data);
  while (it != end) it = it->second.expired() ? known().all.erase(it) : std::next(it);
}

void PackSlot::change(const std::shared_ptr<const PreparedKernel>& kernel, const View& view,
                      const Ref<Buffer>& source) {
  if (packed_ && runs_ < kEnoughRuns) needed_ = std::min(needed_ * 4, kMostNeeded);
  packed_.reset();
  if (seen_ != view.data) seen_ = view.data, runs_ = 0;
  if (++runs_ < needed_ || !source) return;
  packed_ = pack(kernel, view, source);
  runs_ = 0;
}

}  // namespace pg
