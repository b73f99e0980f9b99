// apply, through which every op goes, and the eager interpreter.
#include "tensor/anomaly.h"
#include "tensor/call.h"
#include "tensor/context.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/device_table.h"
#include "tensor/observer.h"
#include "tensor/rule.h"
#include "tensor/tape.h"

namespace pg {
namespace {

constexpr size_t kPolledBytes = 256 << 10;  // a pointwise op that writes less than this ends before a poll would pay

constexpr size_t kPackedWeightBytes = 16 << 10;  // smaller weights are not packed

View view_of(const Array& a) { return {&a.type, &a.strides, a.data()}; }

// Numbers of a call as 0-dim arrays. They live during the call.
struct Immediate {
  Type type;
  Dims strides;
  alignas(8) char data[8];
};

void fill_immediate(const OpDef& op, size_t i, double number, DType dtype, Immediate& slot) {
  if (!holds(dtype, number) && !is_float(dtype))
    bad_argument(op.name, op.inputs[i].name, fmt::format("a number that {} can hold", name_of(dtype)),
                 fmt::format("{}", number));
  slot.type.dtype = dtype;
  store_number(dtype, slot.data, number);
}

// Absent values, numbers and types without data have no view.
SmallVector<View, 4> views_of(std::span<const Value> values) {
  SmallVector<View, 4> views;
  for (const Value& v : values) views.push_back(v.is_array() && v.array().buffer ? view_of(v.array()) : View{});
  return views;
}

void check_anomaly(const OpDef& op, std::span<const Value> inputs, std::span<const Value> out);

bool any_requires_grad(std::span<const Value> inputs) {
  for (const Value& v : inputs)
    if (requires_grad(v)) return true;
  return false;
}

// The views of one kernel call and their owners.
class Call {
 public:
  Call(Context& ctx, const OpDef& op, std::span<Value> inputs, const KernelRow& row) {
    immediates_.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) add_input(ctx, op, inputs, i, row);
  }
  SmallVector<View, 4> in;

 private:
  void add_input(Context& ctx, const OpDef& op, std::span<Value> inputs, size_t i, const KernelRow& row) {
    Value& v = inputs[i];
    if (!v.defined()) return void(in.emplace_back());
    if (v.is_number()) {
      Immediate& slot = immediates_.emplace_back();
      fill_immediate(op, i, v.number(), number_dtype(op, pointwise_compute_dtype(op, inputs)), slot);
      return void(in.push_back({&slot.type, &slot.strides, slot.data}));
    }
    if (reads(row, v.array())) return void(in.push_back(view_of(v.array())));
    in.push_back(view_of(kept_.emplace_back(to_contiguous(ctx, v.detached())).array()));
  }

  SmallVector<Immediate, 2> immediates_;
  SmallVector<Value, 1> kept_;
};

class EagerInterpreter final : public Interpreter {
 public:
  Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) override {
    Values out;
    if (op.has(kPointwise) && apply_alike(ctx, op, inputs, attrs, out)) return out;
    SmallVector<Type, 2> types;
    infer_types(op, inputs, attrs, types);
    if (op.view && append_views(op, inputs[0], attrs, types, out)) {
      record(ctx, op, inputs, attrs, out);
      return out;
    }
    const Device device = device_of(inputs, types);
    const KernelRow row = kernel_row(op, device, inputs);
    if (op.decompose && (!row.fn || differentiates_through_decomposition(ctx, op, inputs)))
      return decompose(ctx, op, inputs, attrs);
    if (!row.fn) {
      if (!view_of_copy(ctx, op, inputs, attrs, types, out)) fail(op.name, "no kernel for device {}", name_of(device));
      record(ctx, op, inputs, attrs, out);
      return out;
    }
    run_kernel(ctx, op, inputs, attrs, row, types, out);
    return out;
  }

 private:
  // Runs the common case of a pointwise op without general inference: one tensor and numbers, or tensors of one type,
  // all row-major on the CPU. Returns false, with nothing done, when the call is not of this kind.
  static bool apply_alike(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs, Values& out) {
    if (op.infer || !op.cpu_kernel.fn || inputs.size() > 3 || !inputs[0].is_array()) return false;
    const Array& first = inputs[0].array();
    const DType dtype = first.type.dtype;
    if (!first.contiguous || !first.type.device.is_cpu() || (op.result == Result::kFloat && !is_float(dtype)))
      return false;
    if (op.decompose && differentiates_through_decomposition(ctx, op, inputs)) return false;
    Immediate immediates[3];
    View in[3];
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Value& v = inputs[i];
      if (v.is_array() ? i > 0 && !(v.array().contiguous && v.type() == first.type)
                       : !v.is_number() || promote_number(dtype, v.number()) != dtype)
        return false;
      if (!accepts(op.inputs[i].dtypes, dtype)) return false;
      if (v.is_number()) {
        fill_immediate(op, i, v.number(), number_dtype(op, dtype), immediates[i]);
        in[i] = {&immediates[i].type, &immediates[i].strides, immediates[i].data};
      } else {
        in[i] = view_of(v.array());
      }
    }
    const bool fresh = op.result == Result::kBool || !reuse(ctx, op, inputs, first.type, 0);
    if (op.result == Result::kBool)
      out.push_back(make_array(Type{DType::kBool, {}, first.type.shape}));
    else
      out.push_back(fresh ? make_array(first.type) : inputs[0].detached());
    const View result = view_of(out[0].array());
    auto no_allocation = [](int, const Dims&) -> View { return {}; };
    const KernelArgs args{op, {in, inputs.size()}, {&result, 1}, attrs, no_allocation};
    if (fresh && out[0].array().buffer->bytes >= kPolledBytes)
      ctx.cancellable([&] { op.cpu_kernel.fn(args); });
    else
      op.cpu_kernel.fn(args);
    if (ctx.detect_anomaly) check_anomaly(op, inputs, out);
    record(ctx, op, inputs, attrs, out);
    return true;
  }

  static bool differentiates_through_decomposition(Context& ctx, const OpDef& op, std::span<Value> inputs) {
    return ctx.recording && !op.differentiable() && !op.has(kNoGrad) && any_requires_grad(inputs);
  }

  static Values decompose(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
    if (!op.differentiable() && !op.has(kNoGrad)) return decomposed(ctx, op, inputs, attrs);
    Values out;
    {
      ScopedFlag quiet(ctx.recording, false);
      out = decomposed(ctx, op, inputs, attrs);
    }
    for (Value& v : out) v = v.detached();
    record(ctx, op, inputs, attrs, out);
    return out;
  }

  static bool append_views(const OpDef& op, const Value& input, const Attrs& attrs, std::span<const Type> types,
                           Values& out) {
    SmallVector<Ref<Array>, 2> views;
    if (!make_views(op, input.array(), attrs, types, views)) return false;
    for (Ref<Array>& view : views) out.emplace_back(std::move(view));
    return true;
  }

  // For a device without a kernel, and a view that this layout does not allow: makes a view of a contiguous copy.
  static bool view_of_copy(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs,
                           std::span<const Type> types, Values& out) {
    if (!op.view || inputs[0].array().contiguous) return false;
    if (!registry().kernel(registry().require("contiguous"), inputs[0].device()).fn) return false;
    return append_views(op, to_contiguous(ctx, inputs[0].detached()), attrs, types, out);
  }

  // Output i takes the buffer of the input that it may rewrite, if there is no other reference to it.
  static bool reuse(Context& ctx, const OpDef& op, std::span<Value> inputs, const Type& type, size_t i) {
    if (keeps_operands(ctx)) return false;
    if (!op.has(kInPlace) && !(op.has(kPointwise) && i == 0)) return false;
    i = rewritten_input(op, inputs.size(), i);
    if (i >= inputs.size() || !inputs[i].is_array()) return false;
    const Array& a = inputs[i].array();
    if (!a.writable() || !a.contiguous || !(a.type == type)) return false;
    const bool read_later =
        !op.has(kNoGrad) && saved_inputs(op, type.dtype) >> input_definition(op, inputs.size(), i) & 1;
    return !(read_later && ctx.recording && any_requires_grad(inputs));
  }

  static void run_kernel(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs,
                         const KernelRow& row, std::span<const Type> types, Values& out) {
    SmallVector<View, 2> views;
    bool fresh = true;
    for (size_t i = 0; i < types.size(); ++i) {
      if (op.has(kDynamicShape)) {
        out.emplace_back();
        views.emplace_back();
        continue;
      }
      const bool rewrites = reuse(ctx, op, inputs, types[i], i);
      fresh &= !rewrites;
      out.push_back(rewrites ? inputs[rewritten_input(op, inputs.size(), i)].detached() : make_array(types[i]));
      views.push_back(view_of(out[i].array()));
    }
    Call call(ctx, op, inputs, row);
    auto allocate = [&](int i, const Dims& shape) {
      out[size_t(i)] = make_array(Type{types[size_t(i)].dtype, types[size_t(i)].device, shape});
      return view_of(out[size_t(i)].array());
    };
    if (has_work(op, call.in, views)) {
      const KernelArgs args{op, call.in, views, attrs, allocate, stream_of(device_of(inputs, types))};
      if (fresh)
        ctx.cancellable(
            [&] { may_pack(ctx, inputs, row) ? run_packed(ctx, inputs[1].array(), row, args) : row.fn(args); });
      else
        row.fn(args);
    }
    if (ctx.detect_anomaly) check_anomaly(op, inputs, out);
    record(ctx, op, inputs, attrs, out);
  }

  // Whether the call may use a packed form of its weight. A weight that gradients are recorded for changes too often.
  static bool may_pack(const Context& ctx, std::span<const Value> inputs, const KernelRow& row) {
    if (!(row.flags & kHasWeight) || ctx.recording) return false;
    for (const Value& v : inputs)
      if (v.defined() && !(v.is_array() && v.array().contiguous)) return false;
    const Array& weight = inputs[1].array();
    const Bytes bytes = bytes_of(weight.type);
    return weight.type.device.is_cpu() && !weight.buffer->borrowed && bytes.count() >= kPackedWeightBytes &&
           bytes == Bytes(weight.buffer->bytes);
  }

  static void run_packed(Context& ctx, const Array& weight, const KernelRow& row, const KernelArgs& args) {
    const std::shared_ptr<const PreparedKernel> kernel = ctx.prepared.find(args, row.prepare);
    const void* packed = kernel ? packed_form(kernel, args.in[1], *weight.buffer) : nullptr;
    if (!packed) return row.fn(args);
    const cpu::ScratchBytes scratch{Bytes(kernel->scratch_bytes)};
    kernel->run(args.in, args.out, scratch.get(), packed);
  }
};

void check_anomaly(const OpDef& op, std::span<const Value> inputs, std::span<const Value> out) {
  if (std::none_of(out.begin(), out.end(), [](const Value& v) { return has_nan(v); })) return;
  raise_anomaly(op, inputs, views_of(inputs), views_of(out));
}

void check_count(const OpDef& op, size_t count) {
  size_t lists = 0;
  for (const InputDef& def : op.inputs) lists += def.arity == Arity::kList;
  const size_t singles = op.inputs.size() - lists;
  if (lists == 0 ? count != singles : count < singles || (count - singles) % lists != 0)
    fail(op.name, "takes {} inputs, got {}", op.inputs.size(), count);
}

// Applies an op while an observer looks on.
Values apply_observed(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
  const SmallVector<View, 4> in = views_of(inputs);
  SmallVector<View, 4> out;
  Work work{.kind = Work::Kind::kOp, .name = op.name, .op = &op, .attrs = &attrs, .in = in, .values = inputs};
  const Observed scope(ctx, work);
  Values results = ctx.interpreter->apply(ctx, op, inputs, attrs);
  const auto buffer = [](const Value& v) { return v.is_array() ? v.array().buffer.get() : nullptr; };
  work.is_view = op.view && !results.empty() && !inputs.empty() && buffer(results[0]) == buffer(inputs[0]);
  work.out = out = views_of(results);
  return results;
}

Values interpret(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
  if (ctx.observer && ctx.interpreter == &eager_interpreter()) return apply_observed(ctx, op, inputs, attrs);
  return ctx.interpreter->apply(ctx, op, inputs, attrs);
}

}  // namespace

Interpreter& eager_interpreter() {
  static EagerInterpreter instance;
  return instance;
}

Value Interpreter::filled(Context&, const Type& type, double number) { return make_filled(type, number); }

Context::Context() : runtime(&Runtime::current()), interpreter(&eager_interpreter()), generator(new Generator(0)) {}

void Context::raise_cancelled() {
  cancel = cancels_all.load();
  throw Cancelled();
}

void Context::count_poll() {
  meter->done += WorkMeter::kPoll;
  if (meter->must_end()) cancels_all = cancel = true;
}

void Context::suspend_if_due() {
  try {
    suspender->poll();
  } catch (const Cancelled&) {
    raise_cancelled();
  }
}

Values apply(Context& ctx, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
  ctx.poll();
  if (inputs.size() != op.inputs.size() || op.inputs.empty() || op.inputs.back().arity == Arity::kList)
    check_count(op, inputs.size());
  for (const Value& v : inputs)
    if (v.is_number()) {
      materialize_numbers(op, inputs, [&](size_t, double number) {
        return make_scalar(number, DType::kFloat32, device_of(inputs, {}));
      });
      break;
    }
  if ((op.random_attr < 0 && op.training_attr < 0) || ctx.interpreter->tracer())
    return interpret(ctx, op, inputs, attrs);
  Attrs resolved = attrs;
  if (op.random_attr >= 0) {
    AttrValue& key = resolved[size_t(op.random_attr)];
    if (auto* generator = std::get_if<Ref<Generator>>(&key))
      key = (*generator)->next();
    else if (key.index() == 0)
      key = ctx.generator->next();
  }
  if (op.training_attr >= 0 && resolved[size_t(op.training_attr)].index() == 0)
    resolved[size_t(op.training_attr)] = ctx.training;
  return interpret(ctx, op, inputs, resolved);
}

Value make_array(const Type& type) {
  Ref<Array> array = Array::make(type);
  array->buffer = Buffer::allocate(type.device, bytes_of(type));
  return Value(std::move(array));
}

Value make_filled(const Type& type, double number) {
  Value host = make_array(Type{type.dtype, {}, type.shape});
  cpu::fill_number(type.dtype, host.array().data(), host.numel(), number);
  if (type.device.is_cpu()) return host;
  Value out = make_array(type);
  upload(type.device, out.array().data(), host.array().data(), host.array().buffer->bytes);
  return out;
}

Value make_scalar(double number, DType dtype, Device device) { return make_filled(Type{dtype, device, {}}, number); }

double item(const Value& value) {
  if (value.is_number()) return value.number();
  const Array& a = value.array();
  if (a.type.device.is_cpu()) return load_number(a.type.dtype, a.data());
  alignas(8) char data[8];
  download(a.type.device, data, a.data(), size_t(size_of(a.type.dtype)));
  return load_number(a.type.dtype, data);
}

bool has_nan(const Value& v) {
  return v.is_array() && is_float(v.dtype()) && v.array().contiguous && has_nan(view_of(v.array()));
}

Value to_contiguous(Context& ctx, const Value& value) {
  if (value.is_number() || value.array().contiguous) return value;
  if (value.device().is_cpu()) {
    Value out = make_array(value.type());
    ctx.cancellable([&] { cpu::copy_strided(view_of(value.array()), out.array().data()); });
    return out;
  }
  Value in[1] = {value};
  return apply(ctx, registry().require("contiguous"), in, {})[0];
}

Value to_device(Context& ctx, const Value& value, Device device) {
  if (value.device() == device) return value;
  const Value source = to_contiguous(ctx, value);
  Value out = make_array(Type{value.dtype(), device, value.shape()});
  const size_t bytes = bytes_of(value.type()).count();
  copy_across(device, out.array().data(), value.device(), source.array().data(), bytes);
  return out;
}

}  // namespace pg
