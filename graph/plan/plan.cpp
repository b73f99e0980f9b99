// Planning: nodes become steps over values, values get storages, and storages with overlapping lifetimes get separate
// places in the arena of their device.
#include "graph/plan/plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "graph/exec/frame.h"
#include "graph/plan/arena.h"
#include "graph/plan/fused.h"
#include "tensor/context.h"
#include "tensor/device_table.h"
#include "tensor/work.h"

namespace pg {
namespace {

constexpr Bytes kPollBytes = Bytes(32 << 10);  // a step that touches more bytes may take over 10 µs

// What the planner knows about one output of a node.
struct PlanValue {
  int32_t storage = -1;
  int32_t root = -1;             // the value that the storage was made for; for a view another value than itself
  Ref<Array> layout;             // the offset counts elements from the start of the storage
  int32_t contiguous_copy = -1;  // a contiguous value with the same elements
  int32_t readers = 0;           // number of nodes that read it
  int32_t view = -1;             // the view in Plan::views that its step writes
  bool returned = false;
};

struct Draft {
  const OpDef* op;
  KernelFn kernel;
  const Attrs* attrs;
  int32_t line;
  std::vector<int32_t> in;  // values; -1: absent
  std::vector<int32_t> out;
  bool commit = false;
  Device device = {};
  std::shared_ptr<const FusedKernel> fused = nullptr;
  const Graph* body = nullptr;  // of a fused step
  std::shared_ptr<const PreparedKernel> prepared = nullptr;
  std::vector<int32_t> scratch = {};  // values
  std::unique_ptr<ControlStep> control = nullptr;
};

class Planner {
 public:
  Planner(const Graph& graph, const PlanOptions& options) : graph_(graph), plan_(std::make_shared<Plan>()) {
    plan_->options = options;
  }

  std::shared_ptr<const Plan> build() {
    add_inputs(graph_);
    const std::vector<int32_t> outputs = lower(graph_, input_values(), -1);
    for (int32_t v : outputs) values_[size_t(v)].returned = true;
    choose_commit(outputs);
    add_outputs(outputs);
    order_steps();
    find_lifetimes();
    if (plan_->options.in_place) share_in_place();
    place_storages();
    emit();
    return plan_;
  }

 private:
  // Values ----------------------------------------------------------------------------------------------------------
  int32_t add_storage(Storage::Kind kind, const Type& type, int32_t index = -1) {
    Storage s;
    s.kind = kind;
    s.device = type.device;
    s.index = index;
    s.bytes = bytes_of(type);
    plan_->storages.push_back(s);
    return int32_t(plan_->storages.size()) - 1;
  }
  int32_t add_value(int32_t storage, Ref<Array> layout, int32_t root = -1) {
    const int32_t value = int32_t(values_.size());
    values_.push_back({storage, root < 0 ? value : root, std::move(layout)});
    return value;
  }
  int32_t add_array(const Type& type, Storage::Kind kind = Storage::kArena) {
    return add_value(add_storage(kind, type), Array::make(type));
  }
  // Capped at the largest size of a tensor: a run cannot allocate more anyway.
  int32_t add_scratch(Device device, Bytes bytes) {
    return add_array(Type{DType::kUInt8, device, {std::min(int64_t(bytes.count()), kMaxElements)}});
  }
  const Array& layout(int32_t value) const { return *values_[size_t(value)].layout; }
  Storage& storage_of(int32_t value) { return plan_->storages[size_t(values_[size_t(value)].storage)]; }

  // Input i has storage i.
  void add_inputs(const Graph& graph) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Type& type = graph.nodes[size_t(graph.inputs[i])].types[0];
      plan_->input_types.push_back(type);
      add_value(add_storage(Storage::kInput, type, int32_t(i)), Array::make(type));
    }
  }
  std::vector<int32_t> input_values() const {
    std::vector<int32_t> all(plan_->input_types.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(i);
    return all;
  }

  int32_t add_constant(const Value& constant) {
    const int32_t storage = add_storage(Storage::kConstant, constant.type(), int32_t(plan_->constants.size()));
    plan_->constants.push_back(constant.detached());
    Ref<Array> layout = Array::make(constant.type());
    layout->strides = constant.array().strides;
    layout->contiguous = constant.array().contiguous;
    return add_value(storage, std::move(layout));
  }

  int32_t add_immediate(double number, DType dtype) {
    Value scalar = make_scalar(number, dtype);
    const int32_t storage = add_storage(Storage::kImmediate, scalar.type(), int32_t(plan_->immediates.size()));
    const int32_t value = add_value(storage, Array::make(scalar.type()));
    plan_->immediates.push_back(std::move(scalar));
    return value;
  }

  // Nodes -----------------------------------------------------------------------------------------------------------
  //
  // Turns the nodes of a graph, or of the body of a fused node, into steps. Returns the values of its outputs. `line`
  // is for nodes without a line.
  std::vector<int32_t> lower(const Graph& graph, const std::vector<int32_t>& inputs, int32_t line) {
    std::vector<std::vector<int32_t>> made(graph.nodes.size());
    size_t next_input = 0;
    const int32_t first_line = int32_t(plan_->lines.size());
    plan_->lines.insert(plan_->lines.end(), graph.lines.begin(), graph.lines.end());
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      const int32_t at = node.line >= 0 ? first_line + node.line : line;
      switch (node.kind) {
        case NodeKind::kInput: {
          const auto place = std::find(graph.inputs.begin(), graph.inputs.end(), int32_t(n));
          made[n] = {inputs[place == graph.inputs.end() ? next_input : size_t(place - graph.inputs.begin())]};
          ++next_input;
          break;
        }
        case NodeKind::kConstant:
          made[n] = {add_constant(node.constant)};
          break;
        case NodeKind::kOp:
          made[n] = is_control(node) ? lower_control(node, made, at) : lower_op(node, made, at);
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
  std::vector<int32_t> fused_inputs(const Node& node, const std::vector<std::vector<int32_t>>& made) {
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

  std::vector<int32_t> lower_fused(const Node& node, const std::vector<std::vector<int32_t>>& made, int32_t line) {
    const Graph& body = *node.body;
    std::vector<int32_t> in = fused_inputs(node, made);
    const Device device = node.types[0].device;
    const auto fused = plan_->options.fuse ? FusedKernel::compile(body, device) : nullptr;
    if (!fused) return lower(body, in, line);
    const OpDef* last = body.nodes[size_t(body.outputs.back().node)].op;
    Draft step{last, nullptr, keep_attrs({}), line, in, {}};
    step.fused = fused;
    step.device = device;
    fuses_ = true;
    step.body = &body;
    for (int32_t v : in)
      if (v >= 0) ++values_[size_t(v)].readers;
    for (const Type& type : node.types) step.out.push_back(add_array(type));
    const std::vector<int32_t> out = step.out;
    drafts_.push_back(std::move(step));
    return out;
  }

  std::vector<int32_t> lower_control(const Node& node, const std::vector<std::vector<int32_t>>& made, int32_t line) {
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
    for (const auto& body : form.bodies) {
      control.bodies.push_back(make_plan(*body, options));
      fuses_ |= control.bodies.back()->source != nullptr;
    }
    lay_out(control);
    for (const Operand& o : node.inputs) {
      const int32_t v = made[size_t(o.node)][size_t(o.output)];
      step.in.push_back(storage_of(v).kind == Storage::kStack ? v : contiguous(v, line));
      ++values_[size_t(step.in.back())].readers;
    }
    for (size_t k = 0; k < node.types.size(); ++k)
      step.out.push_back(is_unlimited_stack(control, k) ? add_stack(node.types[k]) : add_array(node.types[k]));
    for (const ScratchBlock& block : control.blocks) step.scratch.push_back(add_scratch(block.device, block.bytes));
    const std::vector<int32_t> out = step.out;
    drafts_.push_back(std::move(step));
    return out;
  }
  static bool is_unlimited_stack(const ControlStep& control, size_t output) {
    return control.is_loop && control.loop.limit < 0 && output > size_t(control.loop.carries);
  }
  int32_t add_stack(const Type& type) {
    return add_value(add_storage(Storage::kStack, type, plan_->stacks++), Array::make(type));
  }

  static int32_t block_on(ControlStep& control, Device device) {
    auto& blocks = control.blocks;
    const auto at =
        std::find_if(blocks.begin(), blocks.end(), [&](const ScratchBlock& b) { return b.device == device; });
    if (at != blocks.end()) return int32_t(at - blocks.begin());
    blocks.push_back({device});
    return int32_t(blocks.size()) - 1;
  }
  static void lay_out(ControlStep& control) {
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
  }

  // The operands as infer_types takes them: arrays without buffers, numbers.
  SmallVector<Value, 4> infer_values(const Node& node, const std::vector<int32_t>& in) const {
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

  static Device device_of(const SmallVector<Value, 4>& inputs, const Node& node) {
    for (const Value& v : inputs)
      if (v.is_array()) return v.device();
    return node.types.empty() ? Device{} : node.types[0].device;
  }

  std::vector<int32_t> lower_op(const Node& node, const std::vector<std::vector<int32_t>>& made, int32_t line) {
    const OpDef& op = *node.op;
    if (op.has(kDynamicShape)) fail(op.name, "its shape depends on values, which a graph cannot hold");
    std::vector<int32_t> in;
    for (const Operand& o : node.inputs) in.push_back(o.is_node() ? made[size_t(o.node)][size_t(o.output)] : -1);
    SmallVector<Value, 4> types = infer_values(node, in);
    std::vector<int32_t> out;
    if (op.view && view_values(node, in[0], out)) return out;
    const Device device = device_of(types, node);
    const KernelRow row = kernel_row(op, device, types);
    if (!row.fn) {
      if (op.view && view_values(node, contiguous(in[0], line), out)) return out;
      fail(op.name, "no kernel for device {}", name_of(device));
    }
    Draft step{&op, row.fn, keep_attrs(node.attrs), line, {}, {}};
    step.device = device;
    materialize(node, types, in);
    for (size_t i = 0; i < in.size(); ++i) {
      if (types[i].is_number())
        in[i] = add_immediate(types[i].number(), pointwise_compute_dtype(op, types));
      else if (in[i] >= 0 && !(row.flags & kStridedInputs))
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
    drafts_.push_back(std::move(step));
    return out;
  }

  bool has_work(const Draft& step) const {
    SmallVector<View, 4> in, out;
    for (int32_t v : step.in) in.push_back(type_view(v));
    for (int32_t v : step.out) out.push_back(type_view(v));
    return pg::has_work(*step.op, in, out);
  }

  View type_view(int32_t value) const {
    return value < 0 ? View{} : View{&layout(value).type, &layout(value).strides, nullptr};
  }

  void prepare(Draft& step, PrepareFn make) {
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
  bool may_last(int32_t value) {
    const Storage::Kind kind = storage_of(value).kind;
    return (kind == Storage::kInput || kind == Storage::kConstant) && layout(value).contiguous;
  }

  // Does what apply does: a number becomes a 0-dim float32 tensor if the op is not pointwise or has no tensor operand.
  void materialize(const Node& node, SmallVector<Value, 4>& types, std::vector<int32_t>& in) {
    bool any_array = false;
    for (const Value& v : types) any_array |= v.is_array();
    if (any_array && (node.op->has(kPointwise) || node.op->has(kWeakNumber))) return;
    for (size_t i = 0; i < types.size(); ++i) {
      if (!types[i].is_number()) continue;
      in[i] = add_immediate(types[i].number(), DType::kFloat32);
      types[i] = Value(values_[size_t(in[i])].layout);
      if (node.op->has(kPointwise)) return;
    }
  }

  bool view_values(const Node& node, int32_t input, std::vector<int32_t>& out) {
    const Ref<Array> whole = values_[size_t(input)].layout;
    const int32_t storage = values_[size_t(input)].storage, root = values_[size_t(input)].root;
    std::vector<Ref<Array>> views;
    for (size_t i = 0; i < node.types.size(); ++i) {
      ViewArgs args(*node.op, node.attrs, *whole, node.types[i].shape, int(i));
      if (!node.op->view(args)) return false;
      Ref<Array> view = Array::make(node.types[i]);
      view->strides = args.strides;
      view->offset = whole->offset + args.offset;
      view->contiguous = is_contiguous(node.types[i].shape, args.strides);
      views.push_back(std::move(view));
    }
    for (Ref<Array>& view : views) out.push_back(add_value(storage, std::move(view), root));
    return true;
  }

  int32_t contiguous(int32_t value, int32_t line) {
    if (layout(value).contiguous) return value;
    if (values_[size_t(value)].contiguous_copy < 0) {
      const int32_t copy = add_copy(value, add_array(layout(value).type), line);
      values_[size_t(value)].contiguous_copy = copy;
    }
    return values_[size_t(value)].contiguous_copy;
  }
  int32_t add_copy(int32_t from, int32_t to, int32_t line) {
    const OpDef& op = op_named<"contiguous">();
    const Device device = layout(from).type.device;
    const KernelRow row = registry().kernel(op, device);
    if (!row.fn) fail(op.name, "no kernel for device {}", name_of(device));
    ++values_[size_t(from)].readers;
    drafts_.push_back({&op, row.fn, keep_attrs({}), line, {from}, {to}});
    drafts_.back().device = device;
    return to;
  }

  const Attrs* keep_attrs(const Attrs& attrs) {
    plan_->attributes.push_back(std::make_unique<Attrs>(attrs));
    return plan_->attributes.back().get();
  }

  // Commit section --------------------------------------------------------------------------------------------------
  //
  // A step that rewrites an input and that only outputs of the graph read goes last. It may work in the buffer of the
  // input. Only one of these steps may be able to fail (it checks indices before it writes). That step comes first in
  // the section.
  void choose_commit(const std::vector<int32_t>& outputs) {
    std::vector<int32_t> reads(plan_->input_types.size(), 0);  // by input: reads of its storage by steps of the section
    bool fallible = false;
    for (Draft& d : drafts_) {
      if (d.control || !rewrites_input(d)) continue;
      if (d.op->in_place.empty() && std::exchange(fallible, true)) continue;
      d.commit = true;
      for (int32_t v : d.in)
        if (v >= 0 && storage_of(v).kind == Storage::kInput) ++reads[size_t(storage_of(v).index)];
    }
    for (int32_t v : outputs)
      if (storage_of(v).kind == Storage::kInput) reads[size_t(storage_of(v).index)] += 2;
    for (Draft& d : drafts_) {
      if (!d.commit) continue;
      for (size_t i = 0; i < d.out.size(); ++i) {
        const int32_t input = rewritten(d, i);
        if (input >= 0 && reads[size_t(input)] == 1 && values_[size_t(d.out[i])].returned)
          storage_of(d.out[i]).donor = input;
      }
    }
  }

  // Returns the input of the plan whose memory output i of a step may take, or -1.
  int32_t rewritten(const Draft& d, size_t i) const {
    const size_t at = rewritten_input(*d.op, d.in.size(), i);
    if (at >= d.in.size() || d.in[at] < 0 || size_t(d.in[at]) >= plan_->input_types.size()) return -1;
    return layout(d.in[at]).type == layout(d.out[i]).type ? d.in[at] : -1;
  }
  bool rewrites_input(const Draft& d) const {
    if (!plan_->options.in_place || d.fused || !d.op->has(kInPlace) || d.op->has(kEffect)) return false;
    bool any = false;
    for (size_t i = 0; i < d.out.size(); ++i) {
      if (values_[size_t(d.out[i])].readers || is_viewed(d.out[i])) return false;
      any |= rewritten(d, i) >= 0;
    }
    return any;
  }
  bool is_viewed(int32_t value) const {
    for (size_t v = size_t(value) + 1; v < values_.size(); ++v)
      if (values_[v].storage == values_[size_t(value)].storage) return true;
    return false;
  }

  void order_steps() {
    const auto rank = [](const Draft& d) { return d.commit ? d.op->in_place.empty() ? 1 : 2 : 0; };
    std::stable_sort(drafts_.begin(), drafts_.end(), [&](const Draft& a, const Draft& b) { return rank(a) < rank(b); });
    plan_->commit = int32_t(std::find_if(drafts_.begin(), drafts_.end(), [](const Draft& d) { return d.commit; }) -
                            drafts_.begin());
  }

  // Outputs ---------------------------------------------------------------------------------------------------------
  bool covers_storage(int32_t value) {
    return layout(value).contiguous && layout(value).offset == 0 &&
           bytes_of(layout(value).type) == storage_of(value).bytes;
  }
  void add_outputs(const std::vector<int32_t>& outputs) {
    std::vector<int32_t> places(values_.size(), -1);  // by value: its position among the outputs
    for (int32_t v : outputs) {
      int32_t& place = places[size_t(v)];
      if (plan_->options.body || place < 0) {
        place = int32_t(plan_->outputs.size());
        plan_->outputs.push_back(output_of(v));
      } else {
        PlanOutput same = plan_->outputs[size_t(place)];
        same.same_as = place;
        plan_->outputs.push_back(std::move(same));
      }
    }
  }
  // Views of inputs and constants share the memory of these, as in eager mode. Of the program's own memory only whole
  // arrays are returned.
  PlanOutput output_of(int32_t value) {
    const Storage::Kind kind = storage_of(value).kind;
    const bool given = !plan_->options.body && (kind == Storage::kInput || kind == Storage::kConstant);
    const bool whole =
        (kind == Storage::kArena || (kind == Storage::kOutput && !plan_->options.body)) && covers_storage(value);
    if (!given && !whole) value = add_copy(value, add_array(layout(value).type), -1);
    Storage& storage = storage_of(value);
    if (!given && storage.kind != Storage::kOutput) {
      storage.kind = Storage::kOutput;
      storage.index = int32_t(plan_->fresh.size());
      plan_->fresh.push_back({values_[size_t(value)].storage, values_[size_t(value)].layout});
    }
    return {values_[size_t(value)].storage, values_[size_t(value)].layout, values_[size_t(value)].root};
  }

  // Memory ----------------------------------------------------------------------------------------------------------
  void find_lifetimes() {
    for (size_t s = 0; s < drafts_.size(); ++s) {
      for (int32_t v : drafts_[s].out) {
        Storage& storage = storage_of(v);
        storage.first = storage.last = int32_t(s);
      }
      for (int32_t v : drafts_[s].in)
        if (v >= 0) storage_of(v).last = int32_t(s);
      for (int32_t v : drafts_[s].scratch) storage_of(v).first = storage_of(v).last = int32_t(s);
    }
    for (Storage& s : plan_->storages)
      if (s.kind == Storage::kOutput) s.last = int32_t(drafts_.size());
  }

  // A step may write over an operand that no later step reads. The two storages become one.
  void share_in_place() {
    for (size_t s = 0; s < drafts_.size(); ++s) {
      const Draft& d = drafts_[s];
      if (d.commit || d.control) continue;
      for (size_t i = 0; i < d.out.size(); ++i) share_output(d, i, int32_t(s));
    }
  }
  void share_output(const Draft& d, size_t out, int32_t step) {
    if (d.fused) {
      if (!fills_space(d, out)) return;
    } else if (d.op->has(kInPlace)) {
      const size_t in = rewritten_input(*d.op, d.in.size(), out);
      if (may_share(d, in, out, step, false)) merge(d, in, out);
      return;
    } else if (!d.op->has(kPointwise)) {
      return;
    }
    for (size_t in = 0; in < d.in.size(); ++in)
      if (may_share(d, in, out, step, !d.fused)) return merge(d, in, out);
  }
  // Whether an output of a fused step has the shape of the body's index space.
  bool fills_space(const Draft& d, size_t out) const {
    int64_t space = 0;
    for (const Node& n : d.body->nodes)
      for (const Type& t : n.types) space = std::max(space, numel(t.shape));
    return numel(layout(d.out[out]).type.shape) == space;
  }
  // `twice`: the step may read the same value through several operands.
  bool may_share(const Draft& d, size_t in, size_t out, int32_t step, bool twice) {
    if (in >= d.in.size() || d.in[in] < 0) return false;
    const int32_t from = values_[size_t(d.in[in])].storage;
    const Storage& s = plan_->storages[size_t(from)];
    if (s.kind != Storage::kArena || s.last != step || s.first >= step || s.bytes == Bytes() ||
        !covers_storage(d.in[in]))
      return false;
    const Type &a = layout(d.in[in]).type, &b = layout(d.out[out]).type;
    const bool fits =
        d.fused ? a.shape == b.shape && size_of(a.dtype) == size_of(b.dtype) && a.device == b.device : a == b;
    if (!fits) return false;
    for (int32_t v : d.out)
      if (values_[size_t(v)].storage == from) return false;  // taken by another output
    for (size_t k = 0; k < d.in.size(); ++k)
      if (k != in && d.in[k] >= 0 && values_[size_t(d.in[k])].storage == from && !(twice && d.in[k] == d.in[in]))
        return false;
    return true;
  }
  void merge(const Draft& d, size_t in, size_t out) {
    const int32_t from = values_[size_t(d.in[in])].storage, to = values_[size_t(d.out[out])].storage;
    plan_->storages[size_t(to)].first = plan_->storages[size_t(from)].first;
    for (PlanValue& v : values_)
      if (v.storage == from) v.storage = to;
    plan_->storages[size_t(from)].bytes = {};
    plan_->storages[size_t(from)].first = plan_->storages[size_t(from)].last = -1;
  }

  void place_storages() {
    for (size_t s = 0; s < plan_->storages.size(); ++s) {
      Storage& storage = plan_->storages[s];
      if (storage.kind != Storage::kArena || storage.first < 0) continue;
      storage.arena = arena_of(storage.device);
    }
    for (size_t a = 0; a < plan_->arenas.size(); ++a) place_arena(int32_t(a));
  }
  int32_t arena_of(Device device) {
    auto& all = plan_->arenas;
    for (size_t a = 0; a < all.size(); ++a)
      if (all[a].device == device) return int32_t(a);
    all.push_back({device});
    return int32_t(all.size()) - 1;
  }
  void place_arena(int32_t arena) {
    std::vector<ArenaBlock> blocks;
    std::vector<size_t> owners;
    for (size_t s = 0; s < plan_->storages.size(); ++s) {
      const Storage& storage = plan_->storages[s];
      if (storage.kind != Storage::kArena || storage.first < 0 || storage.arena != arena) continue;
      blocks.push_back({storage.bytes, storage.first, storage.last});
      owners.push_back(s);
    }
    plan_->arenas[size_t(arena)].bytes = place_blocks(blocks);
    plan_->arenas[size_t(arena)].lower_bound = arena_lower_bound(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) plan_->storages[owners[i]].offset = blocks[i].offset.count();
  }

  // Steps -----------------------------------------------------------------------------------------------------------
  int32_t emit_view(int32_t value) {
    if (value < 0) {
      plan_->views.emplace_back();
      plan_->slots.emplace_back();
    } else {
      const Array& a = layout(value);
      plan_->views.push_back({&a.type, &a.strides, nullptr});
      const PlanValue& v = values_[size_t(value)];
      plan_->slots.push_back({v.storage, a.offset * size_of(a.type.dtype), values_[size_t(v.root)].view});
    }
    return int32_t(plan_->views.size()) - 1;
  }
  void emit() {
    for (size_t s = 0; s < drafts_.size(); ++s) {
      const Draft& d = drafts_[s];
      Step step{.op = d.op, .kernel = d.kernel, .fused = d.fused.get(), .attrs = d.attrs, .line = d.line};
      step.device = d.device;
      if (!host_reads(d.device) && d.line >= 0)
        step.place = kept_place(error_at(plan_->lines[size_t(d.line)], std::string(d.op->name) + ": "));
      if (d.fused) plan_->fused.push_back(d.fused);
      step.in = int32_t(plan_->views.size()), step.in_count = int32_t(d.in.size());
      Bytes bytes;
      for (int32_t v : d.in) {
        emit_view(v);
        if (v >= 0) bytes += bytes_of(layout(v).type);
      }
      step.out = int32_t(plan_->views.size()), step.out_count = int32_t(d.out.size());
      for (int32_t v : d.out) {
        values_[size_t(v)].view = emit_view(v);
        bytes += bytes_of(layout(v).type);
      }
      step.poll = int32_t(s) <= plan_->commit && (s % 16 == 0 || bytes > kPollBytes);
      emit_scratch(d, step);
      if (d.prepared) emit_prepared(d, step);
      if (d.control)
        emit_control(drafts_[s], step);
      else
        add_random(step, int32_t(s));
      plan_->steps.push_back(step);
    }
    for (PlanOutput& o : plan_->outputs) o.written = values_[size_t(o.written)].view;
    for (PlanValue& v : values_) plan_->layouts.push_back(std::move(v.layout));
    plan_->frames = std::make_unique<FramePool>(*plan_);
    plan_->captures = can_capture();
    if (fuses_) plan_->source = std::make_shared<const Graph>(graph_);
  }
  bool can_capture() const {
    const auto& steps = plan_->steps;
    if (plan_->options.body || steps.empty() || !pg::captures(steps[0].device)) return false;
    return std::all_of(steps.begin(), steps.end(), [&](const Step& s) {
      return !s.control && s.device == steps[0].device && (s.fused || only_queues(*s.op, s.kernel));
    });
  }
  void emit_scratch(const Draft& d, Step& step) {
    step.scratch_count = int32_t(d.scratch.size());
    if (!d.scratch.empty()) step.scratch = int32_t(plan_->views.size());
    for (int32_t v : d.scratch) emit_view(v);
  }
  void emit_prepared(const Draft& d, Step& step) {
    step.prepared = d.prepared.get();
    plan_->prepared.push_back(d.prepared);
    const int packed = d.prepared->packed_input;
    if (packed < 0) return;
    for (const Storage& s : plan_->storages)
      if (s.donor >= 0 && s.donor == values_[size_t(d.in[size_t(packed)])].storage) return;  // changes at every run
    step.pack = int32_t(plan_->packs.size());
    plan_->packs.push_back({step.in + packed, d.prepared});
  }
  void emit_control(Draft& d, Step& step) {
    step.control = d.control.get();
    plan_->controls.push_back(std::move(d.control));
  }
  void add_random(Step& step, int32_t index) {
    if (step.fused || step.op->random_attr < 0) return;
    const auto* key = std::get_if<RandomKey>(&(*step.attrs)[size_t(step.op->random_attr)]);
    if (!key) return;
    step.random = int32_t(plan_->random.size());
    plan_->random.push_back({index, key->seed, key->tick});
  }

  const Graph& graph_;
  std::shared_ptr<Plan> plan_;
  std::vector<PlanValue> values_;
  std::vector<Draft> drafts_;
  bool fuses_ = false;
};

bool& verify_flag() {
#ifdef NDEBUG
  static bool on = std::getenv("PERIGEE_VERIFY_PLANS") != nullptr;
#else
  static bool on = true;
#endif
  return on;
}

}  // namespace

Plan::Plan() = default;
Plan::~Plan() = default;

Bytes Plan::arena_bytes() const {
  Bytes total;
  for (const Arena& a : arenas) total += a.bytes;
  return total;
}
size_t Plan::held_bytes() const { return frames->held_bytes(); }

const Plan& Plan::node_by_node() const {
  if (!source) return *this;
  std::call_once(once_, [this] {
    PlanOptions plain = options;
    plain.fuse = false;
    node_by_node_ = make_plan(*source, plain);
  });
  return *node_by_node_;
}

void verify_plans(bool on) { verify_flag() = on; }

std::shared_ptr<const Plan> make_plan(const Graph& specialized, const PlanOptions& options) {
  std::shared_ptr<const Plan> plan = Planner(specialized, options).build();
  if (verify_flag()) verify(*plan);
  return plan;
}

}  // namespace pg
