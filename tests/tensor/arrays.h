// Helpers for tests that use the core without Lua.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/context.h"
#include "tensor/tape.h"

namespace pg::test {

inline Value run(Context& ctx, const char* name, std::initializer_list<Value> inputs, AttrList attrs = {}) {
  SmallVector<Value, 4> in(inputs);
  const OpDef& op = registry().require(name);
  return apply(ctx, op, in, make_attrs(op, attrs))[0];
}

inline Value array(std::initializer_list<double> numbers, DType dtype = DType::kFloat32) {
  Value v = make_array(Type{dtype, {}, {int64_t(numbers.size())}});
  char* at = static_cast<char*>(v.array().data());
  for (double n : numbers) {
    store_number(dtype, at, n);
    at += size_of(dtype);
  }
  return v;
}

// Returns the elements in row-major order, copied from the value's device.
inline std::vector<double> numbers(Context& ctx, const Value& value) {
  const Value host = to_contiguous(ctx, to_device(ctx, value.detached(), {}));
  std::vector<double> out;
  for (int64_t i = 0; i < host.numel(); ++i)
    out.push_back(load_number(host.dtype(), static_cast<char*>(host.array().data()) + i * size_of(host.dtype())));
  return out;
}
inline std::vector<double> numbers(const Value& value) {
  Context ctx;
  return numbers(ctx, value);
}

// A value that is a leaf of the tape.
struct Leaf {
  Value value;
  Ref<TapeNode> node;
  explicit Leaf(Value v, GradReq req = GradReq::kWrite) : value(std::move(v)), node(make_leaf(value.type(), req)) {
    value.link(node.get(), 0);
  }
  const Value& grad() const { return node->grad->value; }
};

inline void backward_from(Context& ctx, const Value& head, BackwardOptions options = {}) {
  const Value heads[] = {head}, cotangents[] = {Value()};
  backward(ctx, heads, cotangents, options);
}

template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

using Numbers = std::vector<double>;

}  // namespace pg::test
