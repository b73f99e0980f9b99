#include "graph/exec/pack.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tensor/error.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

constexpr uint32_t kEnoughRuns = 16, kMostNeeded = 4096;

}  // namespace

// All packed arrays of a runtime, by array. Keeps nothing alive.
struct PackedArrays {
  std::mutex lock;
  std::unordered_multimap<const void*, std::weak_ptr<const Packed>> all;
};

namespace {

PerRuntime<PackedArrays> packed_arrays;

std::shared_ptr<const Packed> find(PackedArrays& known, const PreparedKernel& kernel, const void* data) {
  std::vector<std::shared_ptr<const Packed>> candidates;  // released after the lock
  const std::lock_guard hold(known.lock);
  const auto [begin, end] = known.all.equal_range(data);
  for (auto it = begin; it != end; ++it)
    if (auto packed = it->second.lock()) {
      candidates.push_back(packed);
      if (packed->kernel->packs_like(kernel)) return packed;
    }
  return nullptr;
}

std::shared_ptr<const Packed> pack(const std::shared_ptr<const PreparedKernel>& kernel, const View& view,
                                   const Ref<Buffer>& source) {
  PackedArrays& known = packed_arrays.of(Runtime::current());
  if (auto there = find(known, *kernel, view.data)) return there;
  auto bytes = PackedBytes::allocate(kernel->packed_bytes);
  if (!bytes) return nullptr;
  auto made = std::make_shared<Packed>();
  made->data = view.data;
  made->kernel = kernel;
  made->source = source;
  made->bytes = std::move(bytes);
  made->known = &known;
  kernel->pack(view, made->bytes->data());
  const std::lock_guard hold(known.lock);
  known.all.emplace(view.data, made);
  return made;
}

}  // namespace

Packed::~Packed() {
  if (!known) return;
  const std::lock_guard hold(known->lock);
  auto [it, end] = known->all.equal_range(data);
  while (it != end) it = it->second.expired() ? known->all.erase(it) : std::next(it);
}

void PackSlot::change(const std::shared_ptr<const PreparedKernel>& kernel, const View& view,
                      const Ref<Buffer>& source) {
  if (packed_) needed_ = runs_ < kEnoughRuns ? std::min(needed_ * 4, kMostNeeded) : kFewestNeeded;
  packed_.reset();
  if (seen_ != view.data) seen_ = view.data, runs_ = 0;
  if (++runs_ < needed_ || !source) return;
  packed_ = pack(kernel, view, source);
  runs_ = 0;
}

void PackSlot::pack_once(const PreparedKernel& kernel, const View& view) {
  packed_.reset();
  once_ = false;
  try {
    if (!own_) own_ = Buffer::allocate(Device{}, Bytes(kernel.packed_bytes));
  } catch (const OutOfMemory&) {
    return;
  }
  kernel.pack(view, own_->data);
  once_ = true;
}

}  // namespace pg
