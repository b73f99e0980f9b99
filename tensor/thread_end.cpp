#include "tensor/thread_end.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>

namespace pg {
namespace {

struct Functions {
  static constexpr int kMost = 32;
  void (*list[kMost])();
  int count;
};
thread_local Functions functions;

void run_all(void*) {
  while (functions.count > 0) functions.list[--functions.count]();
}

// The key, or -1. The first keys of a process need no memory in a thread.
int64_t make_key() {
  pthread_key_t key;
  return pthread_key_create(&key, run_all) == 0 ? int64_t(key) : -1;
}

}  // namespace

void at_thread_end(void (*f)()) {
  static const int64_t key = make_key();
  auto* const end = functions.list + functions.count;
  if (std::find(functions.list, end, f) != end || functions.count == Functions::kMost) return;
  if (key >= 0 && pthread_setspecific(pthread_key_t(key), &functions) == 0) functions.list[functions.count++] = f;
}

}  // namespace pg
