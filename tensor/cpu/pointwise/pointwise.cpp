#include "tensor/cpu/pointwise/pointwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/both_ways.h"
#include "tensor/cpu/pointwise/tile_machine.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/op.h"
#include "tensor/parallel.h"
#include "tensor/thread_end.h"

namespace pg::cpu {
namespace {

bool is_condition(const KernelArgs& args, size_t i) { return args.op.inputs[i].dtypes == kBoolOnly; }

// The dtype of the inputs after promotion; conditions keep theirs. Numbers arrive in it already.
DType compute_dtype(const KernelArgs& args) {
  if (args.op.result != Result::kBool) return args.out[0].dtype();
  bool any = false;
  DType t = DType::kBool;
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (is_condition(args, i)) continue;
    t = any ? promote(t, args.in[i].dtype()) : args.in[i].dtype();
    any = true;
  }
  return t;
}

// Position of the first element that satisfies `bad`, or -1.
template <class T, class Bad>
int64_t find_element(const View& v, Bad bad) {
  const T* data = v.as<const T>();
  const int64_t n = v.numel();
  if (is_contiguous(v.shape(), *v.strides)) {
    for (int64_t i = 0; i < n; ++i)
      if (bad(data[i])) return i;
    return -1;
  }
  Dims index(v.rank(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < v.rank(); ++d) offset += index[d] * (*v.strides)[d];
    if (bad(data[offset])) return i;
    for (int d = v.rank() - 1; d >= 0 && ++index[d] == v.size(d); --d) index[d] = 0;
  }
  return -1;
}

// --- Strides, broadcasting, conversions, conditions: a tile program of one op ---

// What the code of a call depends on: dtypes, levels, attributes, and roughly the size.
using CodeKey = std::array<uint64_t, 1 + kMaxSpanParams>;

CodeKey key_of(const KernelArgs& args, const SpanRow& row, DType compute, const double* params,
               const TileLayout& layout) {
  CodeKey key = {};
  uint64_t& facts = key[0];
  const auto add = [&](uint64_t fact) { facts = facts << 4 | fact; };
  facts = uint64_t(row.index);
  add(uint64_t(compute));
  add(uint64_t(args.out[0].dtype()));
  add(uint64_t(space_class(layout.size)));
  for (size_t k = 0; k < args.in.size(); ++k) {
    add(uint64_t(args.in[k].dtype()));
    add(uint64_t(layout.level(k)));
  }
  if (args.attrs.size()) std::memcpy(&key[1], params, sizeof(double) * kMaxSpanParams);
  return key;
}

int32_t append(TileBody& body, const TileValue& value) {
  body.values.push_back(value);
  return int32_t(body.values.size()) - 1;
}

TileBody body_of(const KernelArgs& args, DType compute, const double* params) {
  TileBody body;
  body.space = args.out[0].shape();
  TileValue op;
  op.kind = TileValue::Kind::kOp;
  op.op = &args.op;
  op.compute = work_dtype(compute);
  op.dtype = op.rounded = args.op.result == Result::kBool ? DType::kBool : op.compute;
  op.count = int8_t(args.in.size());
  if (args.attrs.size()) std::copy(params, params + kMaxSpanParams, op.params);
  for (size_t k = 0; k < args.in.size(); ++k) {
    TileValue v;
    v.index = int32_t(k);
    v.dtype = v.rounded = args.in[k].dtype();
    body.inputs.push_back({v.dtype, args.in[k].shape()});
    op.operands[k] = append(body, v);
    const DType wanted = is_condition(args, k) ? DType::kBool : op.compute;
    if (v.dtype == wanted) continue;
    v.kind = TileValue::Kind::kConvert;
    v.dtype = v.rounded = wanted;
    v.count = 1;
    v.operands[0] = op.operands[k];
    op.operands[k] = append(body, v);
  }
  body.outputs.push_back({append(body, op), args.out[0].dtype(), numel(body.space) == 1});
  return body;
}

void run_one_op(const KernelArgs& args, const SpanRow& row, DType compute, const double* params) {
  struct Slot {
    CodeKey key = {};
    std::unique_ptr<const TiledBody> code;
  };
  constexpr size_t kSlots = 256;
  std::vector<Slot>& slots = per_thread<Slot, std::vector<Slot>>(kSlots);
  const TileLayout layout(args.out[0].shape(), args.in);
  const CodeKey key = key_of(args, row, compute, params, layout);
  uint64_t hash = 0;
  for (const uint64_t word : key) hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  Slot& slot = slots[hash >> 56];
  if (!slot.code || slot.key != key) {
    slot.code = std::make_unique<const TiledBody>(body_of(args, compute, params), layout);
    slot.key = key;
  }
  run_tiles(*slot.code, layout, is_plain(*slot.code, layout), true, args.in, args.out);
}

// clamp without one of its bounds. Without both, x bounds itself.
void run_bounded(const KernelArgs& args) {
  const bool lower = bool(args.in[1]), upper = bool(args.in[2]);
  const char* const name = lower ? "maximum" : "minimum";
  const View in[] = {args.in[0], args.in[lower ? 1 : upper ? 2 : 0]};
  static const Attrs none;
  run_pointwise(KernelArgs{registry().require(name), in, args.out, none, args.allocate}, *find_span(name));
}

}  // namespace

const SpanRow* find_span(std::string_view op) {
  for (const std::span<const SpanRow> table : {basic_spans(), math_spans()})
    for (const SpanRow& row : table)
      if (op == row.op) return &row;
  return nullptr;
}

void check_divisor(const OpDef& op, const View& v, SpanCheck check) {
  if (is_float(v.dtype())) return;
  const int64_t at = visit_dtype(v.dtype(), [&](auto tag) -> int64_t {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      if (check == SpanCheck::kZeroDivisor) return find_element<T>(v, [](T x) { return x == T(0); });
      if constexpr (!std::is_same_v<T, bool>) return find_element<T>(v, [](T x) { return x < T(0); });
    }
    return -1;
  });
  if (at < 0) return;
  const bool zero = check == SpanCheck::kZeroDivisor;
  const std::string where = v.rank() == 0 ? "" : fmt::format(" at element {}", at + 1);
  bad_argument(op.name, op.inputs[1].name,
               zero ? "an integer divisor other than zero" : "integer exponents of at least 0",
               (zero ? "0" : "a negative one") + where);
}

void run_pointwise(const KernelArgs& args, const SpanRow& row) {
  const View& out = args.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  if (args.in.size() == 3 && (!args.in[1] || !args.in[2])) return run_bounded(args);
  if (row.check != SpanCheck::kNothing && is_integer(out.dtype())) check_divisor(args.op, args.in[1], row.check);
  double params[kMaxSpanParams] = {};
  if (args.attrs.size()) tile_params(args.op, args.attrs, params);
  const DType compute = compute_dtype(args);
  const SpanFn fn = row.fn[int(compute)];
  const void* in[kMaxSpanInputs];
  uint32_t scalars = 0;
  // Chains choose by masks, and write large results past the caches.
  const bool chain = (row.condition && n >= kTile) || (n >= kWideSpace && row.lanes && compute == DType::kFloat32);
  bool direct = fn != nullptr && !chain;
  for (size_t k = 0; direct && k < args.in.size(); ++k) {
    const View& v = args.in[k];
    direct = v.dtype() == (is_condition(args, k) ? DType::kBool : compute);
    if (!direct) break;
    in[k] = v.data;
    const int64_t count = v.numel();
    if (count == n)
      direct = n == 1 || is_contiguous(v.shape(), *v.strides);
    else if (count == 1)
      scalars |= 1u << k;
    else
      direct = false;
  }
  if (!direct) return run_one_op(args, row, compute, params);
  const int64_t out_size = size_of(out.dtype());
  const int64_t bytes = std::max<int64_t>(out_size, size_of(compute));
  if (!is_shared(n, bytes, row.cost)) return fn(n, out.data, in, scalars, params);
  const auto compute_part = [&](int64_t begin, int64_t end) {
    const void* part[kMaxSpanInputs];
    for (size_t k = 0; k < args.in.size(); ++k)
      part[k] = static_cast<const char*>(in[k]) + (scalars >> k & 1 ? 0 : begin * size_of(args.in[k].dtype()));
    fn(end - begin, out.as<char>() + begin * out_size, part, scalars, params);
  };
  parallel_for(n, shared_grain(bytes, row.cost),
               [&](int64_t begin, int64_t end) { both_ways(begin, end, bytes, compute_part); });
}

}  // namespace pg::cpu
