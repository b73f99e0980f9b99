#include "graph/plan/lower.h"

#include <algorithm>
#include <utility>

#include "graph/plan/arena.h"
#include "graph/plan/commit.h"
#include "graph/plan/fused.h"
#include "graph/plan/segments.h"
#include "tensor/call.h"
#include "tensor/context.h"
#include "tensor/device_table.h"

namespace pg {

// Values ----------------------------------------------------------------------------------------------------------

int32_t Lowering::add_storage(Storage::Kind kind, const Type& type, int32_t index) {
  Storage s;
  s.kind = kind;
  s.device = type.device;
  s.index = index;
  s.bytes = bytes_of(type);
  plan_->storages.push_back(s);
  return int32_t(plan_->storages.size()) - 1;
}
int32_t Lowering::add_value(int32_t storage, Ref<Array> layout, int32_t root) {
  const int32_t value = int32_t(values_.size());
  values_.push_back({storage, root < 0 ? value : root, std::move(layout)});
  return value;
}
int32_t Lowering::add_array(const Type& type, Storage::Kind kind) {
  return add_value(add_storage(kind, type), Array::make(type));
}
// Capped at the largest size of a tensor: a run cannot allocate more anyway.
int32_t Lowering::add_scratch(Device device, Bytes bytes) {
  return add_array(Type{DType::kUInt8, device, {std::min(int64_t(bytes.count()), kMaxElements)}});
}

void Lowering::add_inputs(const Graph& graph) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Type& type = graph.nodes[size_t(graph.inputs[i])].types[0];
    plan_->input_types.push_back(type);
    const int32_t value = add_value(add_storage(Storage::kInput, type, int32_t(i)), Array::make(type));
    storage_of(value).lasts = graph.nodes[size_t(graph.inputs[i])].lasts;
  }
}
std::vector<int32_t> Lowering::input_values() const {
  std::vector<int32_t> all(plan_->input_types.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(i);
  return all;
}

int32_t Lowering::add_constant(const Value& constant) {
  const int32_t storage = add_storage(Storage::kConstant, constant.type(), int32_t(plan_->constants.size()));
  plan_->constants.push_back(constant.detached());
  Ref<Array> layout = Array::make(constant.type());
  layout->strides = constant.array().strides;
  layout->contiguous = constant.array().contiguous;
  return add_value(storage, std::move(layout));
}

int32_t Lowering::add_immediate(double number, DType dtype) {
  Value scalar = make_scalar(number, dtype);
  const int32_t storage = add_storage(Storage::kImmediate, scalar.type(), int32_t(plan_->immediates.size()));
  const int32_t value = add_value(storage, Array::make(scalar.type()));
  plan_->immediates.push_back(std::move(scalar));
  return value;
}

const std::vector<int32_t>& Lowering::add_draft(Draft draft) {
  draft.invariant = is_invariant(draft);
  for (int32_t v : draft.out) storage_of(v).lasts = draft.invariant;
  return drafts_.emplace_back(std::move(draft)).out;
}

// A step that depends only on inputs that last and on constants, and whose results take not much more memory. It runs
// first, so it must not fail where effects come before it. Devices other than the host report failures late, when the
// results may have been kept already.
bool Lowering::is_invariant(const Draft& draft) const {
  constexpr Bytes kFew = Bytes(64 << 10);
  if (!plan_->options.pack || plan_->options.body || draft.control) return false;
  if (!draft.fused && (draft.op->has(kEffect) || draft.op->has(kRandom))) return false;
  if (effects_ || !host_reads(draft.device)) {
    const DType dtype = layout(draft.out[0]).type.dtype;
    if (!(draft.fused ? is_total(*draft.body) : cannot_fail(*draft.op, dtype))) return false;
  }
  Bytes read, written;
  bool lasts = false;
  for (int32_t v : draft.in) {
    if (v < 0) continue;
    const Storage& s = storage_of(v);
    if (!s.lasts && s.kind != Storage::kConstant && s.kind != Storage::kImmediate) return false;
    lasts |= s.lasts;
    read += s.bytes;
  }
  for (int32_t v : draft.out) written += storage_of(v).bytes;
  return lasts && (written <= read || written <= kFew);
}

// Nodes -----------------------------------------------------------------------------------------------------------

std::vector<int32_t> Lowering::lower(const Graph& graph, const std::vector<int32_t>& inputs, int32_t line) {
  std::vector<std::vector<int32_t>> made(graph.nodes.size());
  std::vector<int32_t> places(graph.nodes.size(), -1);  // by node: its position among the inputs
  for (size_t k = graph.inputs.size(); k-- > 0;) places[size_t(graph.inputs[k])] = int32_t(k);
  size_t next_input = 0;
  const int32_t first_line = int32_t(plan_->lines.size());
  plan_->lines.insert(plan_->lines.end(), graph.lines.begin(), graph.lines.end());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const int32_t at = node.line >= 0 ? first_line + node.line : line;
    switch (node.kind) {
      case NodeKind::kInput:
        made[n] = {inputs[places[n] < 0 ? next_input : size_t(places[n])]};
        ++next_input;
        break;
      case NodeKind::kConstant:
        made[n] = {add_constant(node.constant)};
        break;
      case NodeKind::kOp:
        made[n] = is_control(node) ? lower_control(node, made, at) : lower_op(node, made, at);
        effects_ |= has_effect(node);
        break;
      case NodeKind::kFused:
        made[n] = lower_fused(node, made, at);
        break;
      default:
        throw Error(fmt::format("plan: node {} is not of a specialized graph", n));
    }
  }
  std::vector<int32_t> out;
  for (const Operand& o : graph.outputs) out.push_back(made[size_t(o.node)][size_t(o.output)]);
  return out;
}

// Returns the operands of a fused node. Numbers get the dtype of the body's input.
std::vector<int32_t> Lowering::fused_inputs(const Node& node, const Made& made) {
  const Graph& body = *node.body;
  std::vector<int32_t> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Operand& o = node.inputs[i];
    if (o.is_number())
      inputs.push_back(add_immediate(o.number, body.nodes[size_t(body.inputs[i])].types[0].dtype));
    else
      inputs.push_back(o.is_none() ? -1 : made[size_t(o.node)][size_t(o.output)]);
  }
  return inputs;
}

std::vector<int32_t> Lowering::lower_fused(const Node& node, const Made& made, int32_t line) {
  const Graph& body = *node.body;
  std::vector<int32_t> in = fused_inputs(node, made);
  const Device device = node.types[0].device;
  const auto fused = plan_->options.fuse ? FusedKernel::compile(body, device) : nullptr;
  if (!fused) return lower(body, in, line);
  const OpDef* last = body.nodes[size_t(body.outputs.back().node)].op;
  Draft step{last, nullptr, keep_attrs({}), line, in, {}};
  step.fused = fused;
  step.device = device;
  keeps_source_ = true;
  step.body = &body;
  for (int32_t v : in)
    if (v >= 0) ++values_[size_t(v)].readers;
  for (const Type& type : node.types) step.out.push_back(add_array(type));
  return add_draft(std::move(step));
}

std::vector<int32_t> Lowering::lower_control(const Node& node, const Made& made, int32_t line) {
  Draft step{nullptr, nullptr, nullptr, line, {}, {}};
  step.control = std::make_unique<ControlStep>();
  ControlStep& control = *step.control;
  Control form = control_of(node);
  control.is_loop = form.is_loop();
  control.loop = form.loop;
  control.name = std::move(form.name);
  control.streams = std::move(form.streams);
  PlanOptions options = plan_->options;
  options.body = true;
  options.lendable.clear(), options.replacements.clear();
  options.left = options.consumed = {}, options.changing.clear();
  for (const auto& body : form.bodies) {
    options.places = control.is_loop ? output_places(control.loop, *body) : OutputPlaces();
    control.bodies.push_back(make_plan(*body, options));
    keeps_source_ |= control.bodies.back()->source != nullptr;
  }
  choose_form(control);
  lay_out(control);
  for (const Operand& o : node.inputs) {
    const int32_t v = made[size_t(o.node)][size_t(o.output)];
    step.in.push_back(storage_of(v).kind == Storage::kStack ? v : contiguous(v, line));
    ++values_[size_t(step.in.back())].readers;
  }
  for (size_t k = 0; k < node.types.size(); ++k)
    step.out.push_back(is_unlimited_stack(control, k) ? add_stack(node.types[k]) : add_array(node.types[k]));
  for (const auto* list : {&step.in, &step.out})
    for (const int32_t v : *list) storage_of(v).pinned |= captures(storage_of(v).device);
  for (const ScratchBlock& block : control.blocks) step.scratch.push_back(add_scratch(block.device, block.bytes));
  return add_draft(std::move(step));
}
bool Lowering::is_unlimited_stack(const ControlStep& control, size_t output) {
  return control.is_loop && control.loop.limit < 0 && output > size_t(control.loop.carries);
}
int32_t Lowering::add_stack(const Type& type) {
  return add_value(add_storage(Storage::kStack, type, plan_->stacks++), Array::make(type));
}

int32_t Lowering::block_on(ControlStep& control, Device device) {
  auto& blocks = control.blocks;
  const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const ScratchBlock& b) { return b.device == device; });
  if (at != blocks.end()) return int32_t(at - blocks.begin());
  blocks.push_back({device});
  return int32_t(blocks.size()) - 1;
}
void Lowering::lay_out(ControlStep& control) {
  for (const auto& body : control.bodies) {
    auto& places = control.arenas.emplace_back();
    for (const Arena& a : body->arenas) {  // one per device
      places.push_back({block_on(control, a.device), 0});
      Bytes& bytes = control.blocks[size_t(places.back().block)].bytes;
      bytes = std::max(bytes, arena_aligned(a.bytes));
    }
  }
  if (!control.is_loop) return;
  auto place = [&](const Type& type) {
    const int32_t block = block_on(control, type.device);
    Bytes& bytes = control.blocks[size_t(block)].bytes;
    return ScratchPlace{block, std::exchange(bytes, bytes + arena_aligned(bytes_of(type))).count()};
  };
  const Plan& body = *control.bodies[0];
  control.index = place(body.input_types[0]);
  if (control.loop.conditional) control.flag = place(body.outputs[0].layout->type);
  for (int32_t k = 0; k < control.loop.carries; ++k)
    control.slots.push_back(place(body.input_types[size_t(1 + control.loop.slices + k)]));
  if (!control.repeats) return;
  control.more = place(Type{DType::kBool, body.input_types[0].device, {}});
  for (int32_t k = 0; k < control.loop.slices; ++k) control.rows.push_back(place(body.input_types[size_t(1 + k)]));
  for (size_t k = size_t(control.loop.conditional) + size_t(control.loop.carries); k < body.outputs.size(); ++k)
    control.rows.push_back(place(body.outputs[k].layout->type));
}

// The operands as infer_types takes them: arrays without buffers, numbers.
SmallVector<Value, 4> Lowering::infer_values(const Node& node, const std::vector<int32_t>& in) const {
  SmallVector<Value, 4> out;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].is_number())
      out.push_back(Value(node.inputs[i].number));
    else if (in[i] < 0)
      out.push_back(Value());
    else
      out.push_back(Value(values_[size_t(in[i])].layout));
  }
  return out;
}

// Whether the op copies few numbers of the host to a device that can take them into a program.
bool gives(const Node& node, std::span<const Value> inputs) {
  if (!node.is<"to">() || !captures(node.types[0].device) || !inputs[0].is_array()) return false;
  const auto bytes = [](const Type& type) { return numel(type.shape) * size_of(type.dtype); };
  const Type& given = inputs[0].type();
  return given.device.is_cpu() && std::max(bytes(given), bytes(node.types[0])) <= DeviceTable::kMostGiven;
}

std::vector<int32_t> Lowering::lower_op(const Node& node, const Made& made, int32_t line) {
  const OpDef& op = *node.op;
  if (op.has(kDynamicShape)) fail(op.name, "its shape depends on values, which a graph cannot hold");
  std::vector<int32_t> in;
  for (const Operand& o : node.inputs) in.push_back(o.is_node() ? made[size_t(o.node)][size_t(o.output)] : -1);
  SmallVector<Value, 4> types = infer_values(node, in);
  std::vector<int32_t> out;
  if (op.view && view_values(node, in[0], out)) return out;
  const Device device = gives(node, types) ? node.types[0].device : device_of(types, node.types);
  const KernelRow row = kernel_row(op, device, types);
  if (!row.fn) {
    if (op.view && view_values(node, contiguous(in[0], line), out)) return out;
    fail(op.name, "no kernel for device {}", name_of(device));
  }
  Draft step{&op, row.fn, keep_attrs(node.attrs), line, {}, {}};
  step.device = device;
  materialize_numbers(op, types, [&](size_t i, double number) {
    in[i] = add_immediate(number, DType::kFloat32);
    return Value(values_[size_t(in[i])].layout);
  });
  for (size_t i = 0; i < in.size(); ++i) {
    if (types[i].is_number())
      in[i] = add_immediate(types[i].number(), number_dtype(op, pointwise_compute_dtype(op, types)));
    else if (in[i] >= 0 && !reads(row, layout(in[i])))
      in[i] = contiguous(in[i], line);
    if (in[i] >= 0) ++values_[size_t(in[i])].readers;
  }
  for (const Type& type : node.types) out.push_back(add_array(type));
  step.in = std::move(in);
  step.out = out;
  if (!has_work(step))
    step.kernel = [](const KernelArgs&) {};
  else if (row.prepare && plan_->options.prepare)
    prepare(step, row.prepare);
  return add_draft(std::move(step));
}

bool Lowering::has_work(const Draft& step) const {
  SmallVector<View, 4> in, out;
  for (int32_t v : step.in) in.push_back(type_view(v));
  for (int32_t v : step.out) out.push_back(type_view(v));
  return pg::has_work(*step.op, in, out);
}

View Lowering::type_view(int32_t value) const {
  return value < 0 ? View{} : View{&layout(value).type, &layout(value).strides, nullptr};
}

void Lowering::prepare(Draft& step, PrepareFn make) {
  SmallVector<View, 4> in, out;
  uint32_t lasting = 0;
  for (size_t i = 0; i < step.in.size(); ++i) {
    in.push_back(type_view(step.in[i]));
    if (plan_->options.pack && step.in[i] >= 0 && may_last(step.in[i])) lasting |= 1u << (i & 31);
  }
  for (int32_t v : step.out) out.push_back(type_view(v));
  auto no_allocation = [](int, const Dims&) -> View { return {}; };
  step.prepared = make(KernelArgs{*step.op, in, out, *step.attrs, no_allocation}, lasting);
  if (!step.prepared || step.prepared->scratch_bytes == 0) return;
  step.scratch = {add_scratch(layout(step.out[0]).type.device, Bytes(step.prepared->scratch_bytes))};
}
bool Lowering::is_changing(int32_t value) const {
  const Storage& s = storage_of(value);
  return s.kind == Storage::kInput && changing_[size_t(s.index)];
}
bool Lowering::may_last(int32_t value) {
  const Storage& s = storage_of(value);
  const bool given = s.kind == Storage::kInput && !changing_[size_t(s.index)] && !replaced_[size_t(s.index)];
  return (given || s.kind == Storage::kConstant || s.lasts) && layout(value).contiguous;
}

bool Lowering::view_values(const Node& node, int32_t input, std::vector<int32_t>& out) {
  SmallVector<Ref<Array>, 2> views;
  if (!make_views(*node.op, layout(input), node.attrs, node.types, views)) return false;
  const int32_t storage = values_[size_t(input)].storage, root = values_[size_t(input)].root;
  for (Ref<Array>& view : views) out.push_back(add_value(storage, std::move(view), root));
  return true;
}

int32_t Lowering::contiguous(int32_t value, int32_t line) {
  if (layout(value).contiguous) return value;
  if (values_[size_t(value)].contiguous_copy < 0) {
    const int32_t copy = add_copy(value, add_array(layout(value).type), line);
    values_[size_t(value)].contiguous_copy = copy;
  }
  return values_[size_t(value)].contiguous_copy;
}
int32_t Lowering::add_copy(int32_t from, int32_t to, int32_t line) {
  const OpDef& op = op_named<"contiguous">();
  const Device device = layout(from).type.device;
  const KernelRow row = registry().kernel(op, device);
  if (!row.fn) fail(op.name, "no kernel for device {}", name_of(device));
  ++values_[size_t(from)].readers;
  Draft step{&op, row.fn, keep_attrs({}), line, {from}, {to}};
  step.device = device;
  add_draft(std::move(step));
  return to;
}

const Attrs* Lowering::keep_attrs(const Attrs& attrs) {
  plan_->attributes.push_back(std::make_unique<Attrs>(attrs));
  return plan_->attributes.back().get();
}

}  // namespace pg
