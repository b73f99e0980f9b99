// Taking loops apart and assembling them again.
#include "graph/passes/loop/loop.h"

#include <algorithm>

namespace pg {

LoopEdit::LoopEdit(const Node& node) : body(*body_at(node, 0)), control_(control_of(node)) {
  const LoopForm& loop = form();
  size_t operand = 0, input = 1, output = 0;
  int32_t out = 1;
  if (loop.counted) count = node.inputs[operand++];
  if (loop.conditional) flag = node.inputs[operand++], next_flag = body.outputs[output++];
  for (int32_t k = 0; k < loop.slices; ++k) slices.push_back({node.inputs[operand++], body.inputs[input++]});
  for (int32_t k = 0; k < loop.carries; ++k)
    carries.push_back({node.inputs[operand++], body.inputs[input++], body.outputs[output++], {out++}});
  while (operand < node.inputs.size()) captures.push_back({node.inputs[operand++], body.inputs[input++]});
  for (; output < body.outputs.size(); ++out)
    stacks.push_back({body.outputs[output++], node.types[size_t(out)], {out}});
}

int32_t LoopEdit::make_input(int32_t at) {
  Node& node = body.nodes[size_t(at)];
  const Type type = node.types[0];
  node = Node{};
  node.kind = NodeKind::kInput;
  node.types.push_back(type);
  return at;
}

size_t LoopEdit::add_stack(const Operand& row) {
  for (size_t k = 0; k < stacks.size(); ++k)
    if (stacks[k].row == row) return k;
  stacks.push_back({row, stack_type(body.type(row), std::max<int64_t>(form().limit, 0)), {}});
  return stacks.size() - 1;
}

void LoopEdit::redirect(const Operand& from, const Operand& to) {
  const auto change = [&](Operand& operand) {
    if (operand == from) operand = to;
  };
  for (Node& node : body.nodes)
    for (Operand& operand : node.inputs) change(operand);
  change(next_flag);
  for (Carry& carry : carries) change(carry.next);
  for (Stack& stack : stacks) change(stack.row);
}

std::vector<Operand> LoopEdit::wanted() const {
  std::vector<Operand> out;
  if (form().conditional) out.push_back(next_flag);
  for (const Carry& carry : carries) out.push_back(carry.next);
  for (const Stack& stack : stacks) out.push_back(stack.row);
  return out;
}

size_t LoopEdit::write(Rewrite& rewrite, size_t i) {
  Operands operands;
  const int32_t index = body.inputs[0];
  std::vector<char> stays(body.nodes.size());
  stays[size_t(index)] = true;
  body.inputs = {index};
  if (form().counted) operands.push_back(count);
  if (form().conditional) operands.push_back(flag);
  const auto add = [&](const Operand& from, int32_t input) {
    operands.push_back(from);
    body.inputs.push_back(input);
    stays[size_t(input)] = true;
  };
  for (const Part& part : slices) add(part.from, part.input);
  for (const Carry& carry : carries) add(carry.from, carry.input);
  for (const Part& part : captures) add(part.from, part.input);
  body.outputs = wanted();
  for (size_t k = 0; k < body.nodes.size(); ++k)  // dead code, which is removed below
    if (body.nodes[k].kind == NodeKind::kInput && !stays[k]) body.nodes[k].kind = NodeKind::kConstant;
  Control control = control_;
  control.loop.slices = int32_t(slices.size());
  control.loop.carries = int32_t(carries.size());
  control.bodies = {std::make_shared<const Graph>(without_dead_nodes(body))};
  const size_t at = rewrite.append(control_node(rewrite.graph(), control, operands));
  rewrite.replace(i, 0, Operand::of(at, 0));
  for (size_t k = 0; k < carries.size(); ++k)
    for (int32_t output : carries[k].outputs) rewrite.replace(i, size_t(output), final_of(at, k));
  for (size_t k = 0; k < stacks.size(); ++k)
    for (int32_t output : stacks[k].outputs) rewrite.replace(i, size_t(output), stack_of(at, k));
  return at;
}

int32_t line_in(Graph& graph, const Graph& body, int32_t line) {
  if (line < 0) return -1;
  const std::string& text = body.lines[size_t(line)];
  const auto found = std::find(graph.lines.begin(), graph.lines.end(), text);
  const int32_t at = int32_t(found - graph.lines.begin());
  if (found == graph.lines.end()) graph.lines.push_back(text);
  return at;
}

AfterLoop::AfterLoop(LoopEdit& loop) : lifter(loop.body, std::max<int64_t>(loop.form().limit, 0)), loop_(loop) {
  const auto put = [&](const std::vector<LoopEdit::Part>& parts, Lifter::Kind kind) {
    for (const LoopEdit::Part& part : parts) {
      lifter.put(Operand::of(size_t(part.input)), kind, int32_t(sources_.size()));
      sources_.push_back(part.from);
    }
  };
  put(loop.captures, Lifter::Kind::kSame);
  if (loop.runs_all()) put(loop.slices, Lifter::Kind::kRows);
  for (size_t i = 0; i < loop.body.nodes.size(); ++i) {
    const Node& node = loop.body.nodes[i];
    if (node.kind == NodeKind::kConstant || filled_with(node) || is_view(node)) lifter.lift(i);
  }
}

bool AfterLoop::has_rows(const Operand& operand) const {
  if (lifter.kind(operand) == Lifter::Kind::kRows) return true;
  for (const LoopEdit::Stack& stack : loop_.stacks)
    if (stack.row == operand) return true;
  const Node& node = loop_.body.node(operand);
  return node.is<"reshape_to">() && has_rows(node.inputs[0]);
}

Operand AfterLoop::rows(const Operand& operand) {
  if (lifter.kind(operand) == Lifter::Kind::kRows) return lifter.at(operand);
  const Node& node = loop_.body.node(operand);
  if (node.is<"reshape_to">()) {
    rows(node.inputs[0]);
    if (lifter.lift(size_t(operand.node))) return lifter.at(operand);
  }
  loop_.add_stack(operand);
  stacked_.push_back(operand);
  lifter.put(operand, Lifter::Kind::kRows, -int32_t(stacked_.size()));
  return lifter.at(operand);
}

Operand AfterLoop::copy(const Operand& operand, Rewrite& to, size_t at) {
  return lifter.copy(operand, to, [&](int32_t source) {
    return source >= 0 ? sources_[size_t(source)] : loop_.stack_of(at, loop_.add_stack(stacked_[size_t(-1 - source)]));
  });
}

bool affordable(const Type& row, int64_t rows) {
  constexpr double kMostBytes = 512 << 20;
  return double(numel(row.shape)) * double(size_of(row.dtype)) * double(rows) <= kMostBytes;
}

Operand fill(Rewrite& rewrite, const Type& type, double value) {
  const Ints shape(type.shape.begin(), type.shape.end());
  return rewrite.emit<"full">({}, {{"shape", shape}, {"value", value}, {"dtype", type.dtype}, {"device", type.device}});
}

bool is_product(const Node& node) { return node.has(kProduct) || node.is<"linear">(); }

}  // namespace pg
