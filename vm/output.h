// Where pg.print writes.
#pragma once
#include <cstddef>
#include <string_view>

namespace pg::vm {

struct Output {
  void (*write)(void* user, const char* text, size_t size);  // null: nothing is written
  void* user;

  // That of the call on this thread, or null: standard output.
  static inline thread_local const Output* current = nullptr;
};

// Gives text to the host that takes the prints of this call, or writes it to standard output.
void print_out(std::string_view text);

}  // namespace pg::vm
