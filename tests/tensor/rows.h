// Shared by the tests of the registry's rows: inputs that are likely to break kernels, attributes without a default,
// calls that may be refused.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/tensor/arrays.h"

namespace pg::test {

#define EXPECT(condition, ...) CHECK_MESSAGE((condition), std::string(op->name), ": ", __VA_ARGS__)

inline constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// Elements that are likely to break kernels.
inline std::vector<double> edges(DType t) {
  if (t == DType::kBool) return {0, 1};
  if (is_float(t)) return {0, -0.0, 1, -1, 0.5, -2.5, 2, 3, 1e-7, 6e4, -6e4, kInf, -kInf, kNaN, 1e-45, 12};
  if (t == DType::kUInt8) return {0, 1, 2, 3, 127, 128, 255};
  const double most = std::ldexp(1, std::min(size_of(t) * 8 - 1, 53));
  return {0, 1, -1, 2, 3, -5, 12, -most, size_of(t) < 8 ? most - 1 : most};
}

template <class Number>
Value tensor(DType t, const Dims& shape, const Number& number) {
  Value v = make_array(Type{t, {}, shape});
  for (int64_t i = 0; i < v.numel(); ++i)
    store_number(t, static_cast<char*>(v.array().data()) + i * size_of(t), number(i));
  return v;
}

// The first (or second) elements of all pairs of edges.
inline Value pairs(DType t, bool second) {
  const std::vector<double> e = edges(t);
  const int64_t n = int64_t(e.size());
  return tensor(t, {n, n}, [&](int64_t i) { return e[size_t(second ? i % n : i / n)]; });
}

inline Value edge_tensor(DType t, const Dims& shape, size_t phase) {
  const std::vector<double> e = edges(t);
  return tensor(t, shape, [&](int64_t i) { return e[(size_t(i) + phase) % e.size()]; });
}

// Numbers of many magnitudes, whose sums depend on the order.
inline Value mixed(DType t, const Dims& shape) {
  return tensor(t, shape, [&](int64_t i) {
    const double x = std::sin(double(i) * 12.9898) * 437.585;
    return is_float(t) ? x : std::floor(std::fabs(x)) - (t == DType::kBool ? 400 : 0);
  });
}

inline std::vector<DType> dtypes_of(const InputDef& input) {
  std::vector<DType> out;
  for (int t = 0; t < kDTypeCount; ++t)
    if (accepts(input.dtypes, DType(t))) out.push_back(DType(t));
  return out;
}

// Returns the bytes, with all NaNs made equal.
inline std::string bits(const Value& value) {
  Context ctx;
  const Value v = to_contiguous(ctx, value.detached());
  const size_t size = size_t(size_of(v.dtype()));
  std::string out(static_cast<const char*>(v.array().data()), size * size_t(v.numel()));
  for (size_t at = 0; is_float(v.dtype()) && at < out.size(); at += size)
    if (std::isnan(load_number(v.dtype(), out.data() + at))) out.replace(at, size, size, '?');
  return out;
}

// Returns attributes for those without a default: every size is `size`, every position is the first one.
inline Attrs some_attrs(const OpDef& op, const Ints& sizes) {
  Attrs attrs = make_attrs(op);
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& def = op.attrs[i];
    if (attrs[i].index() != 0 || def.optional) continue;
    if (def.kind == AttrKind::kInt || def.kind == AttrKind::kDim) attrs[i] = int64_t(1);
    if (def.kind == AttrKind::kFloat) attrs[i] = 1.0;
    if (def.kind == AttrKind::kFloats) attrs[i] = Floats{1};
    if (def.kind == AttrKind::kBool) attrs[i] = false;
    if (def.kind == AttrKind::kInts || def.kind == AttrKind::kDims) attrs[i] = sizes;
    if (def.kind == AttrKind::kString) attrs[i] = std::string(def.choices.empty() ? "" : def.choices[0]);
  }
  return attrs;
}

// Returns the results, or nothing when the types or attributes are refused. Lets errors of kernels through.
inline std::optional<Values> applied(const OpDef& op, std::vector<Value> inputs, const Attrs& attrs) {
  Context ctx;
  SmallVector<Type, 2> types;
  try {
    infer_types(op, inputs, attrs, types);
  } catch (const Error&) {
    return std::nullopt;
  }
  return apply(ctx, op, inputs, attrs);
}
inline std::optional<Value> result(const OpDef& op, std::vector<Value> inputs, const Attrs& attrs) {
  const auto all = applied(op, std::move(inputs), attrs);
  return all ? std::optional((*all)[0]) : std::nullopt;
}
inline std::optional<Value> result(const OpDef& op, std::vector<Value> inputs) {
  return result(op, std::move(inputs), some_attrs(op, {2}));
}

template <class F>
void each_op(bool (*wanted)(const OpDef&), const F& f) {
  size_t found = 0;
  for (const OpDef* op : registry().ops())
    if (wanted(*op)) ++found, f(op);
  CHECK(found > 0);
}

// Lists of `count` shapes of up to 5 dims of size 2. With `ones`, of up to 3 dims, one of the last two also of size 1.
// More than 4 shapes have up to 2 dims.
template <class F>
void each_shapes(size_t count, const F& f, bool ones = false) {
  std::vector<Dims> shapes(count);
  const auto next = [&](auto& self, size_t k) -> void {
    if (k == count) return f(shapes);
    for (int rank = 0; rank <= (count > 4 ? 2 : ones ? 3 : 5); ++rank) {
      shapes[k] = Dims(rank, 2);
      self(self, k + 1);
      for (int d = std::max(rank - 2, 0); ones && d < rank; ++d) {
        shapes[k] = Dims(rank, 2);
        shapes[k][d] = 1;
        self(self, k + 1);
      }
    }
  };
  next(next, 0);
}

}  // namespace pg::test
