#include "vm/picker.h"

#include <algorithm>

#include "vm/trace.h"

namespace pg::vm {
namespace {

bool is_mask(const Value& v) { return v.dtype() == DType::kBool; }

// An order of dims in which `dims` follow each other from dim `to` on.
Ints gathered(int rank, const std::vector<int>& dims, int to) {
  Ints order;
  for (int d = 0; d < rank; ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(user_dim(d));
  for (size_t k = 0; k < dims.size(); ++k) order.insert(order.begin() + to + int(k), user_dim(dims[k]));
  return order;
}

Ints inverse(const Ints& order) {
  Ints back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i] - 1)] = int64_t(i + 1);
  return back;
}

Var permuted(const Var& x, const Ints& order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  return call<"permute">(x, {{"dims", order}});
}

// Index lists, one a dim, in the order of the dims.
std::vector<Picker> lists_of(State& state, const std::vector<Picker>& pickers) {
  std::vector<Picker> lists;
  for (const Picker& p : pickers) {
    if (pickers.size() > 1) note_rank(state, p.value);
    if (!is_mask(p.value)) {
      lists.push_back(p);
      continue;
    }
    if (p.value.rank() == 0)
      fail("index", "bad argument 'key' (expected a mask of at least 1 dim beside other masks or index lists, got {})",
           to_string(p.value.type()));
    const Var positions = call<"nonzero">(Var(state.ctx, p.value));
    for (int d = 0; d < p.value.rank(); ++d)
      lists.push_back({call<"select">(positions, {{"dim", int64_t(2)}, {"index", int64_t(d + 1)}}).value(), p.dim + d});
  }
  return lists;
}

// The dim of the result where the dims of the lists go.
int place_of(const std::vector<Picker>& lists) {
  int place = -1;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].value.rank() == 0) continue;
    const int others = lists[i].dim - int(i);  // dims in front of it that no list reads
    if (place >= 0 && others != place) return 0;
    place = others;
  }
  return std::max(place, 0);
}

std::vector<int> dims_of(const std::vector<Picker>& lists) {
  std::vector<int> dims;
  for (const Picker& p : lists) dims.push_back(p.dim);
  return dims;
}

Ints mask_order(const Var& piece, const Picker& mask) {
  std::vector<int> dims;
  for (int d = 0; d < mask.value.rank(); ++d) dims.push_back(mask.dim + d);
  return gathered(piece.rank(), dims, 0);
}

// A value for elements of `rank` dims, with the `count` dims from `at` on moved to the front.
Var picked_first(State& state, Var value, int rank, int at, int count) {
  if (at == 0 || count == 0) return value;
  note_rank(state, value.value());
  if (value.rank() <= rank - at - count) return value;
  while (value.rank() < rank) value = call<"unsqueeze">(value, {{"dim", int64_t(1)}});
  const int extra = value.rank() - rank;
  std::vector<int> dims;
  for (int d = 0; d < count; ++d) dims.push_back(extra + at + d);
  return permuted(value, gathered(value.rank(), dims, extra));
}

// The mask if it is the only picker.
const Picker* only_mask(const std::vector<Picker>& pickers) {
  return pickers.size() == 1 && is_mask(pickers[0].value) ? &pickers[0] : nullptr;
}

}  // namespace

Var read_picked(State& state, const Var& piece, const std::vector<Picker>& pickers) {
  if (const Picker* mask = only_mask(pickers)) {
    const Var found = call<"mask_get">(permuted(piece, mask_order(piece, *mask)), Var(state.ctx, mask->value));
    return permuted(found, inverse(gathered(found.rank(), {mask->dim}, 0)));
  }
  const std::vector<Picker> lists = lists_of(state, pickers);
  if (lists.size() == 1)
    return call<"index_select">(piece, Var(state.ctx, lists[0].value), {{"dim", int64_t(user_dim(lists[0].dim))}});
  const int place = place_of(lists);
  std::vector<Var> inputs = {permuted(piece, gathered(piece.rank(), dims_of(lists), place))};
  for (const Picker& p : lists) inputs.emplace_back(state.ctx, p.value);
  return call_list<"index_get">(inputs, {{"dim", int64_t(user_dim(place))}});
}

Var assign_picked(State& state, const Var& piece, const std::vector<Picker>& pickers, const Var& value) {
  if (const Picker* mask = only_mask(pickers)) {
    const Ints order = mask_order(piece, *mask);
    const Var rows = picked_first(state, value, piece.rank() - mask->value.rank() + 1, mask->dim, 1);
    const Var changed = call<"mask_assign">(permuted(piece, order), Var(state.ctx, mask->value), rows);
    return permuted(changed, inverse(order));
  }
  const std::vector<Picker> lists = lists_of(state, pickers);
  if (lists.size() == 1)
    return call<"index_assign">(piece, Var(state.ctx, lists[0].value), value,
                                {{"dim", int64_t(user_dim(lists[0].dim))}});
  const Ints order = gathered(piece.rank(), dims_of(lists), 0);
  std::vector<Var> inputs = {permuted(piece, order)};
  int rank = 0;
  for (const Picker& p : lists) {
    inputs.emplace_back(state.ctx, p.value);
    rank = std::max(rank, p.value.rank());
  }
  inputs.push_back(picked_first(state, value, piece.rank() - int(lists.size()) + rank, place_of(lists), rank));
  return permuted(call_list<"index_put">(inputs), inverse(order));
}

}  // namespace pg::vm
