// Checks attributes against their definitions, whatever their source: scripts, C++ or files.
#pragma once
#include "tensor/op.h"

namespace pg {

// Throws `op: bad argument …` when a whole number is beyond kMaxElements, or when the value is outside the bounds or
// choices of `def`. Absent values pass.
void check_attr(const OpDef& op, const AttrDef& def, const AttrValue& value);

// Whether the value is of the kind that the row asks for. Programs hold a RandomKey for kRandom, calls a generator.
bool has_kind(const AttrDef& def, const AttrValue& value);

// Returns the value as one of the kind if it can be converted: a whole number for a number, whole numbers for a list
// of numbers, the name of a dtype or device. Otherwise returns the value itself.
AttrValue as_kind(const AttrDef& def, AttrValue value);

// Throws `op: bad argument 'key' (expected one of the options …, got an unknown option; HINT)`. Without a hint it
// suggests the nearest name.
[[noreturn]] void unknown_option(const char* op, const std::string& key, std::span<const std::string_view> known,
                                 std::string hint = "");

}  // namespace pg
