// Pointwise ops and fused bodies. An eager op is a body of one op.
#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "tensor/cuda/body.h"
#include "tensor/cuda/kernels.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using Kind = TileValue::Kind;

class Fused final : public TileKernel {
 public:
  explicit Fused(TileBody body) : body_(std::move(body)) {}
  void run(std::span<const View> in, std::span<const View> out, void* stream) const override {
    body_.run(stream_at(stream), body_.tiles().space, {in, out});
  }

 private:
  const Body body_;
};

std::map<std::string_view, const OpDef*>& known_ops() {
  static auto* all = new std::map<std::string_view, const OpDef*>;
  return *all;
}

// What the body of an eager call depends on: its op (null for a conversion or a constant) and the dtypes of its
// operands.
struct CallKey {
  const OpDef* op;
  uint64_t dtypes;
  bool operator==(const CallKey&) const = default;
};
struct HashOfKey {
  size_t operator()(const CallKey& k) const {
    return (reinterpret_cast<uintptr_t>(k.op) ^ k.dtypes * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu >> 16;
  }
};

// Returns the body of the key, which lives as long as the process.
const Body& known_body(const CallKey& key, FunctionRef<TileBody()> make) {
  static std::mutex lock;
  static auto& all = *new std::unordered_map<CallKey, std::unique_ptr<const Body>, HashOfKey>;
  const std::lock_guard hold(lock);
  std::unique_ptr<const Body>& body = all[key];
  if (!body) body = std::make_unique<const Body>(make());
  return *body;
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

// The body of an op for operands of these dtypes. Its numbers are the parameters of the op.
TileBody body_of(const OpDef& op, std::span<const View> in, DType out) {
  TileBody body;
  TileValue value;
  value.kind = Kind::kOp;
  value.op = &op;
  const DType compute = compute_dtype(op, in, out);
  value.compute = work_dtype(compute);
  value.dtype = value.rounded = op.result == Result::kBool ? DType::kBool : value.compute;
  value.count = int8_t(in.size());
  for (size_t k = 0; k < in.size(); ++k) {
    TileValue v;
    v.index = int32_t(k);
    v.dtype = v.rounded = in[k].dtype();
    body.inputs.push_back({v.dtype, {}});
    value.operands[k] = append(body, v);
    const DType wanted = is_condition(op, k) ? DType::kBool : value.compute;
    if (v.dtype == wanted) continue;
    v.kind = Kind::kConvert;
    v.dtype = v.rounded = wanted;
    v.count = 1;
    v.operands[0] = value.operands[k];
    value.operands[k] = append(body, v);
  }
  body.outputs.push_back({append(body, value), out, false});
  return body;
}

void run_op(Stream& stream, const OpDef& op, std::span<const View> in, const Attrs& attrs, const View& out,
            const char* place) {
  if (out.numel() == 0) return;
  Body::Call call{in, {&out, 1}};
  CallKey key{&op, uint64_t(out.dtype())};
  for (size_t k = 0; k < in.size(); ++k) {
    call.host |= uint64_t(in[k].type->device.is_cpu()) << k;
    key.dtypes = key.dtypes << 4 | uint64_t(in[k].dtype());
  }
  double params[kMaxTileParams] = {};
  tile_params(op, attrs, params);
  call.numbers = params;
  call.place = place;
  known_body(key, [&] { return body_of(op, in, out.dtype()); }).run(stream, out.shape(), call);
}

void pointwise(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  if (a.in.size() < 3 || (a.in[1] && a.in[2])) return run_op(stream, a.op, a.in, a.attrs, a.out[0], a.place);
  const bool lower = bool(a.in[1]), upper = bool(a.in[2]);  // without both, x bounds itself
  const View in[] = {a.in[0], a.in[lower ? 1 : upper ? 2 : 0]};
  run_op(stream, *pointwise_op(lower ? "maximum" : "minimum"), in, Attrs(), a.out[0], a.place);
}

TileBody one_value(const TileValue& value, DType to) {
  TileBody body;
  int32_t last = append(body, value);
  if (value.dtype != to) {
    TileValue converted;
    converted.kind = Kind::kConvert;
    converted.dtype = converted.rounded = work_dtype(to);
    converted.count = 1;
    converted.operands[0] = last;
    last = append(body, converted);
  }
  body.outputs.push_back({last, to, false});
  return body;
}

constexpr uint64_t kConstants = 16;  // in keys without an op; a conversion has its dtypes there

}  // namespace

void run_pointwise(std::string_view op, Stream& stream, std::span<const View> in, const View& out) {
  run_op(stream, *pointwise_op(op), in, Attrs(), out, nullptr);
}

void convert_view(Stream& stream, const View& from, const View& to) {
  const CallKey key{nullptr, uint64_t(from.dtype()) << 8 | uint64_t(to.dtype())};
  const auto make = [&] {
    TileValue value;
    value.kind = Kind::kInput;
    value.dtype = value.rounded = from.dtype();
    TileBody body = one_value(value, to.dtype());
    body.inputs.push_back({from.dtype(), {}});
    return body;
  };
  known_body(key, make).run(stream, to.shape(), {{&from, 1}, {&to, 1}});
}

void fill_view(Stream& stream, const View& to, double number) {
  const auto make = [&] {
    TileValue value;
    value.kind = Kind::kConstant;
    value.dtype = value.rounded = to.dtype();
    return one_value(value, to.dtype());
  };
  Body::Call call{{}, {&to, 1}};
  call.numbers = &number;
  known_body({nullptr, kConstants + uint64_t(to.dtype())}, make).run(stream, to.shape(), call);
}

std::shared_ptr<const TileKernel> compile_body(int, const TileBody& body) {
  const CudaBody seen(body);
  if (!seen.fits(body.space.size()) || seen.refuses) return nullptr;
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
