// Branches and loops: the rows "cond" and "loop" of the registry. Their attributes hold graphs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace pg {

// cond(predicate, captures…): both bodies take the captures and return the same types. The predicate has one element.
// The first body runs if it is not 0, else the second.
//
// loop(operands…): the layout of the operands, of the body and of the outputs:
//   operands  [count] [flag] slices… carries… captures…
//   body      (index, slices…, carries…, captures…) → [flag] carries… stacked…
//   outputs   steps carries… stacked…
// A step gets its number `index` (0-dim int64, from 1), row `index` of each slice, the carries of the previous step
// (the operands in the first step) and the captures. A stacked output holds the rows that the steps returned, and zeros
// where no step ran. The number of steps is the number of rows of the slices, or `count`, but at most `limit`. A
// conditional loop ends before the first step for which the flag (0-dim bool) is false. The output `steps` is the
// number of steps that ran (0-dim int64, on the device of the index).
// Without a limit, the stacked outputs of a conditional loop have one row per step. Their type says 0 rows, and only
// slices of loops can read them. In a trace a conditional loop has no operand `flag`: its attribute `condition`,
// (index, carries…, captures…) → flag, computes it.
struct LoopForm {
  static constexpr int64_t kNoLimit = -1;
  int32_t slices = 0, carries = 0;
  bool counted = false;  // has the operand `count` (0-dim int64)
  bool conditional = false;
  bool reverse = false;      // from the last row to the first
  bool recompute = false;    // rematerialization: backward gets only the carries of a step, and computes the rest again
  int64_t limit = kNoLimit;  // rows of the stacked outputs; with slices, their number of rows
  int64_t checkpoint = 0;    // only in traces: if > 0, the gradient keeps only the carries of every so many steps

  int32_t first_slice(bool trace) const { return int32_t(counted) + int32_t(conditional && !trace); }
  bool operator==(const LoopForm&) const = default;
};

// A generator that a body draws from. Each step draws from a stream of its own. The tick names the stream: see
// body_stream in graph/exec/exec.h.
struct BodyStream {
  uint64_t generator = 0, tick = 0;
  // The fields below exist only in specialized programs. With them a loop that is cut in parts draws the same numbers
  // as the whole loop.
  uint64_t chunk = 0;   // if > 0, a step is a chunk of so many steps of the loop in its body
  bool inner = false;   // whether this is that loop
  uint64_t before = 0;  // steps that another loop ran before the first step of this one
  bool operator==(const BodyStream&) const = default;
};

// What the attributes of a cond or loop hold.
struct Control {
  const OpDef* op = nullptr;
  std::string name;                                  // the name of the function that the script called: "foreach"
  std::vector<std::shared_ptr<const Graph>> bodies;  // then, else; or body and, in some traces, condition
  LoopForm loop;
  std::vector<BodyStream> streams;  // one per generator that the bodies draw from
  int32_t line = -1;                // the node's line

  static Control cond(std::string name);
  static Control loop_of(std::string name, const LoopForm& form);
  bool is_loop() const { return op == &op_named<"loop">(); }
  // Whether this is a conditional loop of a trace, whose condition is a second body.
  bool has_condition() const { return is_loop() && bodies.size() == 2; }
  Attrs attrs() const;
};
Control control_of(const Node& node);
inline bool is_control(const Node& node) { return node.has(kBodies); }

// Read one field of the Control of a node. loop_form requires a loop.
LoopForm loop_form(const Node& node);
const std::shared_ptr<const Graph>& body_at(const Node& node, size_t body);

// Returns a node of `graph` that applies the cond or loop to these operands.
Node control_node(const Graph& graph, const Control& control, std::span<const Operand> operands);

// Throws Error unless the bodies have the numbers of inputs and outputs that so many operands require.
void check_layout(const Control& control, size_t operands);

// Where the memory of the outputs of a loop's body may be: by output, the position of a carry among the outputs, or -1.
// A row in `same_as` has the value of that carry and may be in its memory, where the loop then reads it in the next
// step. A row in `before` is the carry as the step gets it: nobody writes it, since the loop has the step before write
// the carry there. No carry is in both lists. Rows without a limit move, so none of them is in a list.
struct OutputPlaces {
  std::vector<int32_t> same_as, before;
};
OutputPlaces output_places(const LoopForm& form, const Graph& body);

// The type of one row of a slice or stack, and the type of a stack of so many rows.
Type row_type(const Type& whole);
Type stack_type(const Type& row, int64_t rows);

}  // namespace pg
