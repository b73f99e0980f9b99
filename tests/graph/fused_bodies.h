// Shared by the tests of fused kernels: runs a body as one kernel and op by op, and compares every bit.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "graph/plan/fused.h"
#include "graphs.h"
#include "tensor/runtime.h"
#include "tensor/parallel.h"

namespace pg::test {

inline View view_of(const Value& v) { return {&v.type(), &v.array().strides, v.array().data()}; }

// Returns elements in the domain of most ops. With `special`, some of them are zeros, NaN and infinities.
inline Value random_value(std::mt19937& rng, const Type& type, bool special = false, double low = -2, double high = 2) {
  Value v = make_array(type);
  std::uniform_real_distribution<double> uniform(low, high);
  char* at = static_cast<char*>(v.array().data());
  for (int64_t i = 0; i < v.numel(); ++i, at += size_of(type.dtype)) {
    double x = uniform(rng);
    if (special && is_float(type.dtype) && rng() % 16 == 0) {
      const double values[] = {0.0, -0.0, double(NAN), double(INFINITY), -double(INFINITY), 1e-40, -1e38};
      x = values[rng() % 7];
    }
    if (type.dtype == DType::kBool)
      x = double(rng() % 2);
    else if (type.dtype == DType::kUInt8)
      x = double(rng() % 5) + 1;
    else if (!is_float(type.dtype))
      x = double(int(rng() % 9) - 4) + 0.5 > 0 ? double(rng() % 4) + 1 : -double(rng() % 4) - 1;
    store_number(type.dtype, at, x);
  }
  return v;
}

// Returns the same elements with other strides: with the dims in another order, or with gaps.
inline Value restrided(Context& ctx, const Value& v, bool turned) {
  const int rank = v.rank();
  if (rank == 0) return v;
  if (turned && rank >= 2) {
    const Value t = run(ctx, "transpose", {v}, {{"dim0", int64_t(1)}, {"dim1", int64_t(rank)}});
    return run(ctx, "transpose", {to_contiguous(ctx, t)}, {{"dim0", int64_t(1)}, {"dim1", int64_t(rank)}});
  }
  const Value twice = run(ctx, "repeat_interleave", {v}, {{"repeats", Ints{2}}, {"dim", int64_t(rank)}});
  Ref<Array> a = Array::make(v.type());
  a->buffer = twice.array().buffer;
  a->strides = twice.array().strides;
  a->strides[rank - 1] = 2;
  a->contiguous = is_contiguous(v.shape(), a->strides);
  return Value(a);
}

// Returns the position of the first element that differs in its bits, or -1. Two NaN are equal.
inline int64_t first_difference(const Value& a, const Value& b) {
  const int64_t size = size_of(a.dtype());
  const char *x = static_cast<const char*>(a.array().data()), *y = static_cast<const char*>(b.array().data());
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(x + i * size, y + i * size, size_t(size)) == 0) continue;
    const double p = load_number(a.dtype(), x + i * size), q = load_number(a.dtype(), y + i * size);
    if (!(std::isnan(p) && std::isnan(q))) return i;
  }
  return -1;
}

inline Values run_fused(const FusedKernel& kernel, const Graph& body, std::span<const Value> inputs) {
  SmallVector<View, 8> in, out;
  Values results;
  for (const Value& v : inputs) in.push_back(view_of(v));
  for (const Operand& o : body.outputs) {
    results.push_back(make_array(body.type(o)));
    if (body.type(o).dtype == DType::kFloat32)
      std::memset(results.back().array().data(), 0x7f, size_t(results.back().numel()) * 4);
    out.push_back(view_of(results.back()));
  }
  kernel.run(in, out);
  return results;
}

inline void require_same(const Graph& body, const Values& got, const Values& expected, const char* what) {
  for (size_t k = 0; k < expected.size(); ++k) {
    Context ctx;
    const Value want = to_contiguous(ctx, expected[k].detached());
    const int64_t at = first_difference(got[k], want);
    if (at < 0) continue;
    const int64_t size = size_of(want.dtype());
    const double a = load_number(want.dtype(), static_cast<char*>(got[k].array().data()) + at * size);
    const double b = load_number(want.dtype(), static_cast<char*>(want.array().data()) + at * size);
    FAIL(std::string(what) << ": output " << k << " differs at " << at << ": got " << a << ", op by op " << b << "\n"
                           << to_string(body));
  }
}

// Checks a body with contiguous and strided inputs, on one thread and on two.
inline void check_body(const Graph& body, std::span<const Value> inputs) {
  Context ctx;
  const auto kernel = FusedKernel::compile(body);
  const Values expected = run_eagerly(ctx, body, inputs);
  require_same(body, run_fused(*kernel, body, inputs), expected, "contiguous");
  const int threads = num_threads();
  Runtime::current().threads().resize(2);
  require_same(body, run_fused(*kernel, body, inputs), expected, "two threads");
  Runtime::current().threads().resize(threads);
  for (const bool turned : {false, true}) {
    std::vector<Value> strided;
    for (const Value& v : inputs) strided.push_back(restrided(ctx, v, turned));
    require_same(body, run_fused(*kernel, body, strided), expected, turned ? "turned" : "with gaps");
  }
}

}  // namespace pg::test
