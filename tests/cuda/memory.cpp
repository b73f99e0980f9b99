// An area of addresses without access, which queued work makes accessible while it runs.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "../device/queue.h"
#include "fake.h"

namespace fake {
namespace {

constexpr size_t kArea = size_t(256) << 20, kPage = size_t(64) << 10;

struct Area {
  Area()
      : start(
            static_cast<char*>(::mmap(nullptr, kArea, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    free[start] = kArea;
    queue::around_work([] { protect(PROT_READ | PROT_WRITE); }, [] { protect(PROT_NONE); });
  }
  static void protect(int how);
  char* start;
  std::mutex lock;
  std::map<char*, size_t> free, used;
  size_t limit = kArea, taken = 0;
  size_t top = 0;  // bytes from the start that were ever used
};
Area& area() {
  static Area* instance = new Area;
  return *instance;
}
void Area::protect(int how) {
  if (area().top) ::mprotect(area().start, area().top, how);
}

}  // namespace

size_t capacity() { return area().limit; }
size_t room() { return area().limit - area().taken; }

void* allocate(size_t bytes) {
  Area& a = area();
  const std::lock_guard hold(a.lock);
  bytes = std::max((bytes + kPage - 1) / kPage * kPage, kPage);
  if (bytes > a.limit || a.taken > a.limit - bytes) return nullptr;
  for (auto [at, size] : a.free) {
    if (size < bytes) continue;
    a.free.erase(at);
    if (size > bytes) a.free[at + bytes] = size - bytes;
    a.used[at] = bytes;
    a.taken += bytes;
    a.top = std::max(a.top, size_t(at + bytes - a.start));
    return at;
  }
  return nullptr;
}

// Waits for all work, as the driver does.
void release(void* data) {
  queue::drain();
  Area& a = area();
  const std::lock_guard hold(a.lock);
  auto used = a.used.find(static_cast<char*>(data));
  if (used == a.used.end()) __builtin_trap();  // freed twice, or never allocated
  auto [at, size] = *used;
  a.used.erase(used);
  a.taken -= size;
  auto next = a.free.lower_bound(at);
  if (next != a.free.end() && at + size == next->first) size += next->second, next = a.free.erase(next);
  if (next != a.free.begin() && std::prev(next)->first + std::prev(next)->second == at)
    std::prev(next)->second += size;
  else
    a.free[at] = size;
}

}  // namespace fake

extern "C" __attribute__((visibility("default"))) void fake_limit(size_t bytes) {
  fake::area().limit = bytes ? std::min(bytes, fake::kArea) : fake::kArea;
}
