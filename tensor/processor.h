// Differences between processors outside of vector code, which uses Highway.
#pragma once

namespace pg {

// Tells the core that this loop waits for another thread.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace pg
