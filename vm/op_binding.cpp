// Which argument of a call is which input or attribute of an op.
#include "tensor/error.h"
#include "vm/args.h"

namespace pg::vm {
namespace {

bool is_numeric(AttrKind kind) {
  return is_list(kind) || kind == AttrKind::kInt || kind == AttrKind::kFloat || kind == AttrKind::kDim;
}

void add_slot(OpBinding& b, const std::string& name) {
  for (size_t i = 0; i < b.op->inputs.size(); ++i)
    if (name == b.op->inputs[i].name) return b.slots.push_back({true, int(i), false});
  const int attr = b.op->attr_index(name.c_str());
  if (attr < 0) throw Error(fmt::format("{}: its signature names '{}', which it does not have", b.op->name, name));
  b.slots.push_back({false, attr, false});
}

bool in_slots(const OpBinding& b, bool is_input, int index) {
  for (const Slot& s : b.slots)
    if (s.is_input == is_input && s.index == index) return true;
  return false;
}

void mark_variadic(OpBinding& b) {
  for (size_t i = 0; i < b.slots.size(); ++i) {
    Slot& s = b.slots[i];
    if (s.is_input) {
      s.variadic = b.op->inputs[size_t(s.index)].arity == Arity::kList;
      continue;
    }
    const AttrKind kind = b.op->attrs[size_t(s.index)].kind;
    if (!is_list(kind)) continue;
    if (b.first_list_attr < 0) b.first_list_attr = int(i);
    bool alone = true;
    for (size_t j = i + 1; j < b.slots.size(); ++j)
      alone &= !b.slots[j].is_input && !is_numeric(b.op->attrs[size_t(b.slots[j].index)].kind);
    s.variadic = alone;
  }
}

}  // namespace

// Has the slots of the names in `signature`, then those of the other inputs and attributes.
OpBinding make_binding(const OpDef& op, const Alias* alias) {
  OpBinding b{&op, {}, -1, alias && alias->attr ? alias : nullptr};
  for (const std::string& name : words(op.signature)) add_slot(b, name);
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (!in_slots(b, true, int(i))) b.slots.push_back({true, int(i), false});
  for (size_t i = 0; i < op.attrs.size(); ++i)
    if (!in_slots(b, false, int(i)) && op.attrs[i].kind != AttrKind::kRandom) b.slots.push_back({false, int(i), false});
  if (b.alias) {
    const int fixed = op.attr_index(b.alias->attr);
    std::erase_if(b.slots, [&](const Slot& s) { return !s.is_input && s.index == fixed; });
  }
  mark_variadic(b);
  return b;
}

}  // namespace pg::vm
