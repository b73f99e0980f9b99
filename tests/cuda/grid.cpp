// Runs the threads of a grid one after the other, from the first or from the last on. Threads that wait for others are
// fibers. A warp takes turns until all its threads wait for the block, then the next warp does.
#include <dlfcn.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "fake.h"

namespace fake {
namespace {

struct Position {
  unsigned x;
};
struct Positions {
  explicit Positions(void* module)
      : thread(find(module, "threadIdx")),
        block(find(module, "blockIdx")),
        threads(find(module, "blockDim")),
        blocks(find(module, "gridDim")) {}
  static Position* find(void* module, const char* name) { return static_cast<Position*>(dlsym(module, name)); }
  Position *thread, *block, *threads, *blocks;
};

constexpr size_t kStack = 64 << 10;
constexpr unsigned kWarp = 32;

// Lives as long as the process: after a thread it waits for the next one.
struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStack]};
  jmp_buf place = {};  // where it goes on
  bool started = false, done = false;
  bool waits = false;  // for the block
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  jmp_buf scheduler = {};
  size_t current = 0;
  void (*kernel)(const void*) = nullptr;
  const void* argument = nullptr;
};
Block block;  // work runs on one thread at a time
std::atomic<bool> backwards{false};

// Calls f(i) for the numbers below n.
template <class F>
void each(unsigned n, F f) {
  for (unsigned i = 0; i < n; ++i) f(backwards ? n - 1 - i : i);
}

// _setjmp makes no system call, as swapcontext does.
void wait_for_warp() {
  if (!_setjmp(block.fibers[block.current]->place)) _longjmp(block.scheduler, 1);
}
void wait_for_block() {
  block.fibers[block.current]->waits = true;
  wait_for_warp();
}

void run_fiber() {
  for (;;) {
    block.kernel(block.argument);
    block.fibers[block.current]->done = true;
    wait_for_block();
  }
}

void resume(Fiber& fiber) {
  if (_setjmp(block.scheduler)) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, run_fiber, 0);
  setcontext(&context);
}

// Runs the threads of a warp until they all wait for the block or are done. Returns how many are not done.
unsigned run_warp(const Positions& at, unsigned first, unsigned threads) {
  unsigned left = 0;
  for (bool waiting = false; !waiting;) {
    waiting = true, left = 0;
    each(threads, [&](unsigned t) {
      Fiber& fiber = *block.fibers[first + t];
      if (!fiber.done && !fiber.waits) {
        block.current = at.thread->x = unsigned(first + t);
        resume(fiber);
      }
      left += !fiber.done;
      waiting &= fiber.done || fiber.waits;
    });
  }
  return left;
}

void run_block(const Positions& at, unsigned threads) {
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned t = 0; t < threads; ++t) block.fibers[t]->done = false;
  for (unsigned left = threads; left > 0;) {
    left = 0;
    for (unsigned t = 0; t < threads; ++t) block.fibers[t]->waits = false;
    each((threads + kWarp - 1) / kWarp,
         [&](unsigned w) { left += run_warp(at, w * kWarp, std::min(threads - w * kWarp, kWarp)); });
  }
}

}  // namespace

void run_grid(void* module, void (*kernel)(const void*), bool waits, unsigned blocks, unsigned threads,
              const void* argument) {
  const Positions at(module);
  at.threads->x = threads;
  at.blocks->x = blocks;
  if (waits) {
    *static_cast<void (**)()>(dlsym(module, "wait_for_block")) = wait_for_block;
    *static_cast<void (**)()>(dlsym(module, "wait_for_warp")) = wait_for_warp;
  }
  block.kernel = kernel;
  block.argument = argument;
  each(blocks, [&](unsigned b) {
    at.block->x = b;
    if (waits) return run_block(at, threads);
    each(threads, [&](unsigned t) { at.thread->x = t, kernel(argument); });
  });
}

}  // namespace fake

extern "C" __attribute__((visibility("default"))) void fake_backwards(int on) { fake::backwards = on != 0; }
