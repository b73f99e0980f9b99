#include "tensor/thread_end.h"
#include "tensor/value.h"

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/tape.h"

namespace pg {
namespace {

// Array headers are created and freed once per op. The thread that frees one keeps it for reuse.
constexpr int kPoolDepth = 4096;
struct ArrayPool {
  void* free[kPoolDepth];
  int count;
  bool armed, dead;
};
thread_local ArrayPool pool;

void arm_pool() {
  pool.armed = true;
  at_thread_end([] {
    pool.dead = true;
    while (pool.count) ::operator delete(pool.free[--pool.count]);
  });
}

}  // namespace

std::string to_string(const Type& type) {
  return fmt::format("{} {} {}", name_of(type.dtype), to_string(type.shape), name_of(type.device));
}

static_assert(sizeof(Array) <= 288);

Ref<Array> Array::make(const Type& type) {
  void* block = pool.count ? pool.free[--pool.count] : ::operator new(sizeof(Array));
  Array* array = new (block) Array;
  array->type = type;
  array->strides = contiguous_strides(type.shape);
  return Ref<Array>(array);
}

void Array::no_data() { throw NoValue(); }

void Array::destroy(Array* array) {
  array->~Array();
  if (pool.dead || pool.count == kPoolDepth) return ::operator delete(array);
  if (!pool.armed) arm_pool();
  pool.free[pool.count++] = array;
}

}  // namespace pg
