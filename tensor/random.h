// Counter-based random state. Every random op takes one tick of a generator when it is applied. Its numbers are a pure
// function of (seed, tick, element), so they do not depend on the order of execution.
#pragma once
#include <cstdint>

#include "tensor/refcount.h"

namespace pg {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t tick = 0;
  bool operator==(const RandomKey&) const = default;
};

class Generator : public RefCounted<Generator> {
 public:
  explicit Generator(uint64_t seed) : key_{seed, 0} {}
  static void destroy(Generator* g) { delete g; }
  void seed(uint64_t seed) { key_ = {seed, 0}; }
  RandomKey next() { return {key_.seed, key_.tick++}; }
  RandomKey state() const { return key_; }
  void set_state(RandomKey key) { key_ = key; }

 private:
  RandomKey key_;
};

}  // namespace pg
