#include "graph/ir/control.h"

#include <algorithm>

#include "tensor/context.h"
#include "tensor/error.h"

namespace pg {
namespace {

// The attributes that both rows share, then those of loops.
enum Place : size_t {
  kName,
  kStreams,
  kFirstBody,
  kSecondBody,
  kSlices,
  kCarries,
  kCounted,
  kConditional,
  kReverse,
  kRecompute,
  kLimit,
  kCheckpoint
};
constexpr size_t kStreamNumbers = 5;
constexpr double kMostParts = 1 << 28;

Ints packed(const std::vector<BodyStream>& streams) {
  Ints out;
  for (const BodyStream& s : streams)
    for (uint64_t n : {s.generator, s.tick, s.chunk, uint64_t(s.inner), s.before}) out.push_back(int64_t(n));
  return out;
}

std::vector<BodyStream> unpacked(const Ints& numbers) {
  std::vector<BodyStream> out;
  for (size_t k = 0; k + kStreamNumbers <= numbers.size(); k += kStreamNumbers) {
    const auto at = [&](size_t i) { return uint64_t(numbers[k + i]); };
    out.push_back({at(0), at(1), at(2), at(3) != 0, at(4)});
  }
  return out;
}

LoopForm form_in(const Attrs& attrs) {
  const auto number = [&](size_t k) { return std::get<int64_t>(attrs[k]); };
  const auto flag = [&](size_t k) { return std::get<bool>(attrs[k]); };
  LoopForm form;
  form.slices = int32_t(number(kSlices));
  form.carries = int32_t(number(kCarries));
  form.counted = flag(kCounted);
  form.conditional = flag(kConditional);
  form.reverse = flag(kReverse);
  form.recompute = flag(kRecompute);
  form.limit = number(kLimit);
  form.checkpoint = number(kCheckpoint);
  return form;
}

Control control_in(const OpDef& op, const Attrs& attrs) {
  Control control;
  control.op = &op;
  control.name = std::get<std::string>(attrs[kName]);
  control.streams = unpacked(std::get<Ints>(attrs[kStreams]));
  for (size_t k : {kFirstBody, kSecondBody})
    if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attrs[k]); body && *body)
      control.bodies.push_back(*body);
  if (control.is_loop()) control.loop = form_in(attrs);
  return control;
}

// Inference ---------------------------------------------------------------------------------------------------------

[[noreturn]] void refuse(const Control& control, const std::string& what) {
  throw Error(fmt::format("{}: {}", control.op->name, what));
}

const Type& input_type(const Graph& body, size_t k) { return body.nodes[size_t(body.inputs[k])].types[0]; }

void check_body(const Control& control, size_t b, size_t inputs, size_t outputs) {
  const Graph& body = *control.bodies[b];
  if (body.inputs.size() != inputs)
    refuse(control, fmt::format("its body takes {} inputs, got {}", body.inputs.size(), inputs));
  if (body.outputs.size() < outputs)
    refuse(control, fmt::format("its body returns {} outputs, expected {}", body.outputs.size(), outputs));
}

void check_same(const Control& control, const char* what, size_t k, const Type& given, const Type& expected) {
  if (!(given == expected))
    refuse(control,
           fmt::format("{} {} of a body is {}, expected {}", what, k + 1, to_string(given), to_string(expected)));
}

void infer_cond(Infer& c) {
  const Control control = control_in(c.op(), c.attrs());
  check_layout(control, c.count());
  if (numel(c.shape(0)) != 1) refuse(control, "needs a predicate of one element");
  const Graph &then = *control.bodies[0], &other = *control.bodies[1];
  for (const Graph* body : {&then, &other})
    for (size_t k = 1; k < c.count(); ++k) check_same(control, "input", k - 1, input_type(*body, k - 1), c.type(k));
  for (size_t k = 0; k < then.outputs.size(); ++k) {
    c.outputs.push_back(then.type(then.outputs[k]));
    check_same(control, "output", k, other.type(other.outputs[k]), c.outputs.back());
  }
}

void infer_loop(Infer& c) {
  const Control control = control_in(c.op(), c.attrs());
  check_layout(control, c.count());
  const LoopForm& loop = control.loop;
  const Graph& body = *control.bodies[0];
  const size_t first = size_t(loop.first_slice(control.has_condition())), slices = size_t(loop.slices),
               carries = size_t(loop.carries), flag = loop.conditional && !control.has_condition();
  for (size_t k = first; k < c.count(); ++k) {
    const size_t part = k - first;
    if (part < slices && c.rank(k) == 0) refuse(control, fmt::format("slice {} has no dim to cut", part + 1));
    const bool slice = part < slices, carry = !slice && part < slices + carries;
    check_same(control,
               slice   ? "slice"
               : carry ? "carry"
                       : "capture",
               slice ? part : part - slices, input_type(body, 1 + part), slice ? row_type(c.type(k)) : c.type(k));
  }
  c.outputs.push_back(Type{DType::kInt64, input_type(body, 0).device, {}});
  for (size_t k = flag; k < body.outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k]);
    const bool carry = k - flag < carries;
    if (carry) check_same(control, "carried output", k - flag, type, input_type(body, 1 + slices + k - flag));
    c.outputs.push_back(carry ? type : stack_type(type, std::max<int64_t>(loop.limit, 0)));
  }
}

// The rows ----------------------------------------------------------------------------------------------------------

AttrDef streams_row() {
  return {.name = "streams",
          .kind = AttrKind::kInts,
          .fallback = Ints{},
          .doc = "generators that the bodies draw from: five numbers each, see BodyStream"};
}
AttrDef body_row(const char* name, const char* doc, bool optional = false) {
  return {.name = name, .kind = AttrKind::kGraph, .doc = doc, .optional = optional};
}
AttrDef name_row(const char* name) {
  return {.name = "name",
          .kind = AttrKind::kString,
          .fallback = std::string(name),
          .doc = "name of the call in the script"};
}
AttrDef flag_row(const char* name, const char* doc) {
  return {.name = name, .kind = AttrKind::kBool, .fallback = false, .doc = doc};
}
AttrDef count_row(const char* name, int64_t fallback, const char* doc, double max = 1e300) {
  return {.name = name, .kind = AttrKind::kInt, .fallback = fallback, .doc = doc, .min = double(fallback), .max = max};
}

std::vector<OpDef> control_rows() {
  return {
      {.name = "cond",
       .doc = "the results of one of two graphs",
       .inputs = {{.name = "predicate"}, {.name = "captures", .arity = Arity::kList}},
       .attrs = {name_row("cond"), streams_row(), body_row("then_body", "runs where the predicate is not 0"),
                 body_row("else_body", "runs where it is 0")},
       .infer = infer_cond,
       .traits = kHidden | kBodies},
      {.name = "loop",
       .doc = "a graph applied step by step; see LoopForm",
       .inputs = {{.name = "operands", .arity = Arity::kList}},
       .attrs = {name_row("loop"), streams_row(), body_row("body", "one step"),
                 body_row("condition", "of a conditional loop in a trace: whether another step follows", true),
                 count_row("slices", 0, "operands of which each step gets a row", kMostParts),
                 count_row("carries", 0, "operands that each step replaces", kMostParts),
                 flag_row("counted", "has an operand with the number of steps"),
                 flag_row("conditional", "each step decides whether another one follows"),
                 flag_row("reverse", "from the last row to the first"),
                 flag_row("recompute", "its gradient keeps only the carries"),
                 count_row("limit", LoopForm::kNoLimit, "the most steps; -1: no limit"),
                 count_row("checkpoint", 0, "the gradient keeps the carries of every so many steps; 0: of all")},
       .outputs = {"steps", "results"},
       .infer = infer_loop,
       .traits = kHidden | kBodies},
  };
}
const MoreRows kControlRows(control_rows);

}  // namespace

Control Control::cond(std::string name) {
  Control control;
  control.op = &op_named<"cond">();
  control.name = std::move(name);
  return control;
}

Control Control::loop_of(std::string name, const LoopForm& form) {
  Control control;
  control.op = &op_named<"loop">();
  control.name = std::move(name);
  control.loop = form;
  return control;
}

Attrs Control::attrs() const {
  Attrs out = make_attrs(*op);
  out[kName] = name;
  out[kStreams] = packed(streams);
  for (size_t k = 0; k < bodies.size(); ++k) out[kFirstBody + k] = bodies[k];
  if (!is_loop()) return out;
  out[kSlices] = int64_t(loop.slices);
  out[kCarries] = int64_t(loop.carries);
  out[kCounted] = loop.counted;
  out[kConditional] = loop.conditional;
  out[kReverse] = loop.reverse;
  out[kRecompute] = loop.recompute;
  out[kLimit] = loop.limit;
  out[kCheckpoint] = loop.checkpoint;
  return out;
}

Control control_of(const Node& node) {
  Control control = control_in(*node.op, node.attrs);
  control.line = node.line;
  return control;
}

LoopForm loop_form(const Node& node) { return form_in(node.attrs); }

const std::shared_ptr<const Graph>& body_at(const Node& node, size_t body) {
  return std::get<std::shared_ptr<const Graph>>(node.attrs[kFirstBody + body]);
}

Node control_node(const Graph& graph, const Control& control, std::span<const Operand> operands) {
  Node node;
  node.op = control.op;
  node.attrs = control.attrs();
  node.line = control.line;
  SmallVector<Value, 4> inputs;
  for (const Operand& operand : operands) {
    node.inputs.push_back(operand);
    inputs.emplace_back(Array::make(graph.type(operand)));
  }
  SmallVector<Type, 2> types;
  infer_types(*node.op, inputs, node.attrs, types);
  for (const Type& type : types) node.types.push_back(type);
  return node;
}

void check_layout(const Control& control, size_t operands) {
  if (!control.is_loop()) {
    if (control.bodies.size() != 2) refuse(control, "has two bodies");
    if (operands < 1) refuse(control, "lacks operands");
    for (size_t b = 0; b < 2; ++b) check_body(control, b, operands - 1, control.bodies[1 - b]->outputs.size());
    return;
  }
  const LoopForm& loop = control.loop;
  const bool condition = control.has_condition();
  if (loop.slices < 0 || loop.carries < 0 || loop.limit < LoopForm::kNoLimit || loop.checkpoint < 0)
    refuse(control, "a negative count");
  if (control.bodies.empty() || (condition && !loop.conditional))
    refuse(control, "needs one body, and in a trace a second one for its condition");
  const size_t first = size_t(loop.first_slice(condition)), slices = size_t(loop.slices),
               carries = size_t(loop.carries);
  if (operands < first + slices + carries) refuse(control, "lacks operands");
  if (!loop.counted && !loop.conditional && loop.limit < 0)
    refuse(control, "has neither a count, a condition nor a limit of steps");
  const size_t captures = operands - first - slices - carries;
  check_body(control, 0, 1 + operands - first, size_t(loop.conditional && !condition) + carries);
  if (!condition) return;
  check_body(control, 1, 1 + carries + captures, 1);
  if (control.bodies[1]->outputs.size() != 1) refuse(control, "its condition returns more than one output");
}

OutputPlaces output_places(const LoopForm& form, const Graph& body) {
  const size_t count = body.outputs.size(), carry = form.conditional, row = carry + size_t(form.carries);
  OutputPlaces places{std::vector<int32_t>(count, -1), std::vector<int32_t>(count, -1)};
  if (form.limit < 0) return places;
  // Gives each carry the first row that `fits` it, unless it has one.
  std::vector<bool> taken(row);
  const auto choose = [&](std::vector<int32_t>& list, const auto& fits) {
    for (size_t c = carry; c < row; ++c)
      for (size_t k = row; k < count && !taken[c]; ++k)
        if (list[k] < 0 && fits(c, body.outputs[k])) list[k] = int32_t(c), taken[c] = true;
  };
  const size_t input = 1 + size_t(form.slices) - carry;
  choose(places.before, [&](size_t c, const Operand& o) { return o == Operand::of(size_t(body.inputs[input + c])); });
  choose(places.same_as, [&](size_t c, const Operand& o) { return o == body.outputs[c]; });
  return places;
}

Type row_type(const Type& whole) {
  Type row{whole.dtype, whole.device, {}};
  for (int64_t size : std::span(whole.shape).subspan(1)) row.shape.push_back(size);
  return row;
}

Type stack_type(const Type& row, int64_t rows) {
  Type whole{row.dtype, row.device, {rows}};
  for (int64_t size : row.shape) whole.shape.push_back(size);
  try {
    numel(whole.shape);
  } catch (const Error&) {
    throw Error(fmt::format("a loop cannot keep {} rows of {}: more than 2^56 elements", rows, to_string(row)));
  }
  return whole;
}

}  // namespace pg
