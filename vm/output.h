// Where pg.print writes.
#pragma once
#include <cstddef>

namespace pg::vm {

struct Output {
  void (*write)(void* user, const char* text, size_t size);  // null: nothing is written
  void* user;

  // That of the call on this thread, or null: standard output.
  static inline thread_local const Output* current = nullptr;
};

}  // namespace pg::vm
