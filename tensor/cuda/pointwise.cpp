// Pointwise ops and fused bodies. An eager op is a body of one op.
#include <algorithm>
#include <map>

#include "tensor/cuda/compiler.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/launch.h"
#include "tensor/kernels/cuda_source.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using Kind = TileValue::Kind;

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

// What the source of a body depends on besides the form of a call.
std::string key_of(const TileBody& body) {
  std::string key = "body";
  for (const TileValue& v : body.values) {
    key += char('0' + int(v.kind));
    key += char('a' + int(v.dtype));
    key += char('a' + int(v.rounded));
    if (v.kind == Kind::kInput) key += std::to_string(v.index);
    if (v.kind == Kind::kOp) key += v.op->name, key += char('a' + int(v.compute));
    for (int k = 0; k < v.count; ++k) key += ',' + std::to_string(v.operands[k]);
  }
  for (const TileOutput& o : body.outputs)
    key += '>' + std::to_string(o.value) + char('a' + int(o.dtype)) + (o.single ? "1" : "");
  return key + ':';
}

void set_fault(Stream& stream, const TileBody& body, std::span<const View> in, const char* place, CudaCall& call) {
  for (const TileValue& v : body.values) {
    if (v.kind != Kind::kOp || !v.op->has(kRefuses) || !is_integer(v.compute)) continue;
    Refusal r;
    r.op = v.op;
    r.input = 1;
    r.place = place;
    r.argument = v.op->inputs[1].name;
    r.kind = std::string_view(v.op->name) == "pow" ? Refusal::Kind::kExponent : Refusal::Kind::kDivisor;
    if (in.size() > 1) r.shape = in[1].shape();
    call.set_fault(int64_t(reinterpret_cast<intptr_t>(stream.fault->get())), report_number(r));
    return;
  }
}

class Fused final : public TileKernel {
 public:
  explicit Fused(TileBody body) : body_(std::move(body)) {}
  void run(std::span<const View> in, std::span<const View> out, void* stream) const override {
    run_body(stream_at(stream), body_, in, out);
  }

 private:
  const TileBody body_;
};

std::map<std::string_view, const OpDef*>& known_ops() {
  static auto* all = new std::map<std::string_view, const OpDef*>;
  return *all;
}

bool is_condition(const OpDef& op, size_t i) { return op.inputs[i].dtypes == kBoolOnly; }

// The dtype of the inputs after promotion; conditions keep theirs. Numbers arrive in it already.
DType compute_dtype(const OpDef& op, std::span<const View> in, DType result) {
  if (op.result != Result::kBool) return result;
  DType t = DType::kBool;
  bool any = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (is_condition(op, i)) continue;
    t = any ? promote(t, in[i].dtype()) : in[i].dtype();
    any = true;
  }
  return t;
}

int32_t append(TileBody& body, const TileValue& value) {
  body.values.push_back(value);
  return int32_t(body.values.size()) - 1;
}

// The attributes of a pointwise op as its formula takes them: numbers in order, flags as 0 and 1, choices by index.
void params_of(const OpDef& op, const Attrs& attrs, double* params) {
  for (size_t i = 0; i < std::min(attrs.size(), size_t(kMaxTileParams)); ++i) {
    const AttrValue& v = attrs[i];
    if (const auto* number = std::get_if<double>(&v)) params[i] = *number;
    if (const auto* whole = std::get_if<int64_t>(&v)) params[i] = double(*whole);
    if (const auto* flag = std::get_if<bool>(&v)) params[i] = *flag;
    if (const auto* text = std::get_if<std::string>(&v)) {
      const auto& choices = op.attrs[i].choices;
      params[i] = double(std::find(choices.begin(), choices.end(), *text) - choices.begin());
    }
  }
}

TileBody body_of(const OpDef& op, const Attrs& attrs, std::span<const View> in, const View& out) {
  TileBody body;
  body.space = out.shape();
  TileValue value;
  value.kind = Kind::kOp;
  value.op = &op;
  const DType compute = compute_dtype(op, in, out.dtype());
  value.compute = is_half(compute) ? DType::kFloat32 : compute;
  value.dtype = value.rounded = op.result == Result::kBool ? DType::kBool : value.compute;
  value.count = int8_t(in.size());
  params_of(op, attrs, value.params);
  for (size_t k = 0; k < in.size(); ++k) {
    TileValue v;
    v.index = int32_t(k);
    v.dtype = v.rounded = in[k].dtype();
    body.inputs.push_back({v.dtype, in[k].shape()});
    value.operands[k] = append(body, v);
    const DType wanted = is_condition(op, k) ? DType::kBool : value.compute;
    if (v.dtype == wanted) continue;
    v.kind = Kind::kConvert;
    v.dtype = v.rounded = wanted;
    v.count = 1;
    v.operands[0] = value.operands[k];
    value.operands[k] = append(body, v);
  }
  body.outputs.push_back({append(body, value), out.dtype(), false});
  return body;
}

void run_op(const KernelArgs& a, const OpDef& op, std::span<const View> in, const Attrs& attrs) {
  if (a.out[0].numel() == 0) return;
  uint64_t numbers = 0;
  for (size_t k = 0; k < in.size(); ++k) numbers |= uint64_t(in[k].type->device.is_cpu()) << k;
  run_body(stream_at(a.stream), body_of(op, attrs, in, a.out[0]), in, a.out, numbers, a.place);
}

void pointwise(const KernelArgs& a) {
  if (a.in.size() < 3 || (a.in[1] && a.in[2])) return run_op(a, a.op, a.in, a.attrs);
  const bool lower = bool(a.in[1]), upper = bool(a.in[2]);  // without both, x bounds itself
  const View in[] = {a.in[0], a.in[lower ? 1 : upper ? 2 : 0]};
  run_op(a, *pointwise_op(lower ? "maximum" : "minimum"), in, Attrs());
}

TileBody one_value(const Dims& space, const TileValue& value, DType to) {
  TileBody body;
  body.space = space;
  int32_t last = append(body, value);
  if (value.dtype != to) {
    TileValue converted;
    converted.kind = Kind::kConvert;
    converted.dtype = converted.rounded = is_half(to) ? DType::kFloat32 : to;
    converted.count = 1;
    converted.operands[0] = last;
    last = append(body, converted);
  }
  body.outputs.push_back({last, to, false});
  return body;
}

}  // namespace

void run_body(Stream& stream, const TileBody& body, std::span<const View> in, std::span<const View> out,
              uint64_t numbers, const char* place) {
  CudaCall call(body, in, out, numbers);
  if (call.elements() == 0) return;
  const CUfunction kernel =
      stream.gpu.modules->kernel(key_of(body) + call.form(), "fused", [&] { return call.source("fused"); });
  if (cuda_refuses(body)) set_fault(stream, body, in, place, call);
  launch(stream, kernel, call.elements(), call.words().data());
}

void run_pointwise(std::string_view op, Stream& stream, std::span<const View> in, const View& out) {
  uint64_t numbers = 0;
  for (size_t k = 0; k < in.size(); ++k) numbers |= uint64_t(in[k].type->device.is_cpu()) << k;
  run_body(stream, body_of(*pointwise_op(op), Attrs(), in, out), in, {&out, 1}, numbers);
}

void convert_view(Stream& stream, const View& from, const View& to) {
  TileValue value;
  value.kind = Kind::kInput;
  value.dtype = value.rounded = from.dtype();
  TileBody body = one_value(to.shape(), value, to.dtype());
  body.inputs.push_back({from.dtype(), from.shape()});
  run_body(stream, body, {&from, 1}, {&to, 1});
}

void fill_view(Stream& stream, const View& to, double number) {
  TileValue value;
  value.kind = Kind::kConstant;
  value.dtype = value.rounded = to.dtype();
  value.number = number;
  run_body(stream, one_value(to.shape(), value, to.dtype()), {}, {&to, 1});
}

std::shared_ptr<const TileKernel> compile_body(int, const TileBody& body) {
  if (!cuda_expresses(body) || cuda_refuses(body)) return nullptr;
  return std::make_shared<Fused>(body);
}

KernelRow pointwise_row(const OpDef& op) {
  const bool known =
      op.has(kPointwise) && cuda_formulas().find('"' + std::string(op.name) + '"') != std::string_view::npos;
  if (known) known_ops()[op.name] = &op;
  return {op.name, known ? pointwise : nullptr, kStridedInputs};
}

const OpDef* pointwise_op(std::string_view name) { return known_ops().at(name); }

}  // namespace pg::cuda
