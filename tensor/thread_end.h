// Work at the end of a thread. For the destructor of a thread_local object the C library needs memory when the object
// is made, and ends the process if there is none.
#pragma once
#include <utility>

namespace pg {

// Calls f when this thread ends, each f once. The main thread calls none. Does nothing if the system has no room for
// it: what f would free is lost then.
void at_thread_end(void (*f)());

// An object of this thread, made from `args` at the first use. Tag tells objects of one type apart.
template <class Tag, class T, class... Args>
T& per_thread(Args&&... args) {
  static thread_local T* object = nullptr;
  if (!object) {
    object = new T(std::forward<Args>(args)...);
    at_thread_end([] { delete std::exchange(object, nullptr); });
  }
  return *object;
}

}  // namespace pg
