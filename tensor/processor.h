// Differences between processors outside of vector code, which uses Highway.
#pragma once
#include <ucontext.h>

namespace pg {

// Tells the core that this loop waits for another thread.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns the address of the instruction that a signal interrupted.
inline const void* interrupted_at(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.pc);
#else
  return nullptr;
#endif
}

}  // namespace pg
