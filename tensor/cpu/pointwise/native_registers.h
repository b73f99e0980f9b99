// Which vector registers hold the values of a NativeGraph. The code computes a block of eight vectors in groups,
// one group after the other, each node by node. A node takes one register for each vector of the group, next to each
// other.
#pragma once
#include <optional>
#include <vector>

#include "tensor/cpu/pointwise/native_nodes.h"

namespace pg::cpu {

inline constexpr int kBlockVectors = 8;

struct NativeRegisters {
  int group = 1;            // vectors
  bool pinned = false;      // uniform nodes keep one register for the whole block, which is loaded once
  std::vector<int> first;   // of each node; -1: it has none
  std::vector<bool> folds;  // loads that are the memory operand of the next node's instruction
};

// Registers [0, count), without the first eight if the accumulators before or after the run are in them. Nothing if the
// graph needs more.
std::optional<NativeRegisters> assign_registers(const NativeGraph& graph, int count);

}  // namespace pg::cpu
