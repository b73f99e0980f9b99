// The masks and index lists in the key of x[…].
#pragma once
#include <vector>

#include "tensor/rule.h"
#include "vm/state.h"

namespace pg::vm {

// A bool mask or an index list, and the first dim of the piece that it applies to. Of several, each list reads one
// coordinate: they broadcast together, and a mask is the coordinates of its true elements. The dims of what they pick
// are where those of the lists are if no dim is between these, else in front. Lists without dims count like numbers
// there, as in PyTorch.
struct Picker {
  Value value;
  int dim;
};

Var read_picked(State& state, const Var& piece, const std::vector<Picker>& pickers);

// Returns the piece with what is picked replaced by `value`, which broadcasts to it.
Var assign_picked(State& state, const Var& piece, const std::vector<Picker>& pickers, const Var& value);

}  // namespace pg::vm
