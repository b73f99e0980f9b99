// What anomaly mode says about an op that made a NaN.
#pragma once
#include <span>
#include <string>

#include "tensor/op.h"

namespace pg {

// "op: made a NaN: x = float32 3 in -1..2; out = float32 3 in 0..1.4, 1 NaN".
class Anomaly : public Error {
 public:
  using Error::Error;
};

// "x = float32 2x3 in -1..4; y = 2". Absent operands are left out. An operand that is not among `values` as a number
// has a view. `elements`: see describe_range.
std::string describe_operands(const OpDef& op, std::span<const Value> values, std::span<const View> in,
                              bool elements = false);
std::string describe_results(const OpDef& op, std::span<const View> out, bool elements = false);

// Operands in whose memory the op wrote its results are left out.
[[noreturn]] void raise_anomaly(const OpDef& op, std::span<const Value> values, std::span<const View> in,
                                std::span<const View> out);

}  // namespace pg
