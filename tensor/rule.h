// For derivatives and decompositions, which are written with ops. A Var is a Value with its Context and arithmetic;
// call<"name"> applies an op of the registry.
#pragma once
#include <algorithm>
#include <vector>

#include "tensor/context.h"
#include "tensor/error.h"

namespace pg {

class Var {
 public:
  Var() = default;
  Var(Context& ctx, Value value) : ctx_(&ctx), value_(std::move(value)) {}
  Var(double number) : value_(number) {}  // NOLINT: numbers are weak scalars
  bool defined() const { return value_.defined(); }
  const Value& value() const { return value_; }
  Value& value() { return value_; }
  Context* context() const { return ctx_; }
  const Dims& shape() const { return value_.shape(); }
  int rank() const { return value_.rank(); }
  DType dtype() const { return value_.dtype(); }
  int64_t numel() const { return value_.numel(); }

 private:
  Context* ctx_ = nullptr;
  Value value_;
};

Values apply_vars(const OpDef& op, std::initializer_list<Var> inputs, AttrList attrs);
Values apply_vars(const OpDef& op, std::span<const Var> inputs, AttrList attrs, const AttrReader* like = nullptr);

// Returns the first output of an op without attributes. Absent optional inputs may be omitted at the end.
Var apply_refs(const OpDef& op, std::span<const Var* const> inputs);

inline const Var& as_var(const Var& v) { return v; }
inline Var as_var(double number) { return Var(number); }

template <OpName name, class... Vars>
Var call_refs(const Vars&... vars) {
  const Var* all[] = {&vars...};
  return apply_refs(op_named<name>(), all);
}

// call<"mul">(x, 2.0), call<"sum">(x, {{"dim", Ints{1}}, {"keepdim", true}}): returns the first output of the op. An
// undefined Var is an absent optional input. At least one Var must have a context.
template <OpName name, class... Vars>
Var call(const Var& first, const Vars&... rest) requires(std::is_convertible_v<Vars, Var>&&...) {
  return call_refs<name>(first, as_var(rest)...);
}
template <OpName name>
Var call(std::initializer_list<Var> inputs, AttrList attrs) {
  Context* ctx = nullptr;
  for (const Var& v : inputs)
    if (v.context()) ctx = v.context();
  return Var(*ctx, apply_vars(op_named<name>(), inputs, attrs)[0]);
}
template <OpName name>
Var call(const Var& x, AttrList attrs) {
  return call<name>({x}, attrs);
}
template <OpName name>
Var call(const Var& x, const Var& y, AttrList attrs) {
  return call<name>({x, y}, attrs);
}
template <OpName name>
Var call(const Var& x, const Var& y, const Var& z, AttrList attrs) {
  return call<name>({x, y, z}, attrs);
}
// Returns all outputs of an op.
template <OpName name>
std::vector<Var> call_all(std::initializer_list<Var> inputs, AttrList attrs = {}) {
  Context* ctx = nullptr;
  for (const Var& v : inputs)
    if (v.context()) ctx = v.context();
  std::vector<Var> out;
  for (Value& v : apply_vars(op_named<name>(), inputs, attrs)) out.emplace_back(*ctx, std::move(v));
  return out;
}
// Returns the first output, for a list of inputs whose length is known at run time.
template <OpName name>
Var call_list(std::span<const Var> inputs, AttrList attrs = {}) {
  Context* ctx = nullptr;
  for (const Var& v : inputs)
    if (v.context()) ctx = v.context();
  return Var(*ctx, apply_vars(op_named<name>(), inputs, attrs)[0]);
}

// Arithmetic of two numbers returns a number, computed in double precision.
inline bool both_numbers(const Var& a, const Var& b) { return a.value().is_number() && b.value().is_number(); }
inline Var number_like(const Var& a, const Var& b, double number) {
  Context* ctx = a.context() ? a.context() : b.context();
  return ctx ? Var(*ctx, Value(number)) : Var(number);
}
inline Var operator+(const Var& a, const Var& b) {
  return both_numbers(a, b) ? number_like(a, b, a.value().number() + b.value().number()) : call<"add">(a, b);
}
inline Var operator-(const Var& a, const Var& b) {
  return both_numbers(a, b) ? number_like(a, b, a.value().number() - b.value().number()) : call<"sub">(a, b);
}
inline Var operator*(const Var& a, const Var& b) {
  return both_numbers(a, b) ? number_like(a, b, a.value().number() * b.value().number()) : call<"mul">(a, b);
}
inline Var operator/(const Var& a, const Var& b) {
  return both_numbers(a, b) ? number_like(a, b, a.value().number() / b.value().number()) : call<"div">(a, b);
}
inline Var operator-(const Var& a) {
  return both_numbers(a, a) ? number_like(a, a, -a.value().number()) : call<"neg">(a);
}

// A shape as an attribute value; dims as the user writes them (1-based).
inline Ints ints(const Dims& dims) { return Ints(dims.begin(), dims.end()); }
inline int64_t user_dim(int index) { return index + 1; }
inline Ints user_dims(const Dims& indices) {
  Ints out;
  for (int64_t d : indices) out.push_back(d + 1);
  return out;
}

// The arguments of a decomposition.
class Rule : public AttrReader {
 public:
  Rule(Context& ctx, const OpDef& op, const Attrs& attrs, std::span<const Value> inputs)
      : AttrReader(op, attrs), ctx_(ctx), inputs_(inputs) {}
  Context& context() const { return ctx_; }
  size_t count() const { return inputs_.size(); }
  bool has(size_t i) const { return inputs_[i].defined(); }
  Var in(size_t i) const { return Var(ctx_, inputs_[i]); }
  const Value& input(size_t i) const { return inputs_[i]; }
  Var wrap(Value v) const { return Var(ctx_, std::move(v)); }

  // Returns f(). The errors of the ops that it applies name the op of the rule, which the script called.
  template <class F>
  auto in_own_name(F&& f) const {
    struct Scope {
      const char*& place;
      const char* before;
      ~Scope() { place = before; }
    } scope{ctx_.raiser, ctx_.raiser};
    if (!ctx_.raiser) ctx_.raiser = op().name;
    return with_name(public_name(op().name), f);
  }

 protected:
  Context& ctx_;
  std::span<const Value> inputs_;
};

// call<"name"> with the values of `c` for the attributes that both ops have, and with `attrs`.
template <OpName name>
Var call_like(const Rule& c, std::initializer_list<Var> inputs, AttrList attrs = {}) {
  return c.wrap(apply_vars(op_named<name>(), std::span(inputs.begin(), inputs.size()), attrs, &c)[0]);
}

// The arguments of OpDef::expand: a call with at least one option.
class Expansion : public Rule {
 public:
  Expansion(Context& ctx, const OpDef& op, const Attrs& attrs, const Attrs& options, std::span<const Value> inputs)
      : Rule(ctx, op, attrs, inputs), options_(options) {}
  template <class T>
  const T& option(const char* name) const {
    return std::get<T>(raw_option(name));
  }
  // Applies the op, without options, to these inputs, with its attributes or with others.
  std::vector<Var> apply_op(std::span<const Var> inputs) const { return apply_op(inputs, attrs()); }
  std::vector<Var> apply_op(std::span<const Var> inputs, const Attrs& attrs) const;
  // Throws `op: bad argument 'name' (expected …, got …)`.
  [[noreturn]] void bad_option(const char* name, const std::string& expected) const;

 private:
  const AttrValue& raw_option(const char* name) const;
  const Attrs& options_;
};

// The outputs of a call with options, which has the values of OpDef::options in order; absent ones were not given.
Values expanded(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, const Attrs& options);

// Expands {dtype}: input 1 is converted to it before the computation, and the outputs have it. The second one refuses
// dtypes that are not floating.
std::vector<Var> expand_dtype(Expansion& c);
std::vector<Var> expand_float_dtype(Expansion& c);
// The definition of that option.
AttrDef dtype_option();

// The arguments of a derivative rule. Inputs and outputs that vjp_uses does not name have a type but no values. A rule
// may return gradients of a broadcast shape and of any dtype: backward sums and casts them to the input's type.
class Vjp : public Rule {
 public:
  Vjp(Context& ctx, const OpDef& op, const Attrs& attrs, std::span<const Value> inputs, std::span<const Value> outputs,
      std::span<const Value> cotangents, std::span<const bool> needs, std::span<Value> grads)
      : Rule(ctx, op, attrs, inputs), outputs_(outputs), cotangents_(cotangents), needs_(needs), grads_(grads) {}
  Var out(size_t i = 0) const { return Var(ctx_, outputs_[i]); }
  bool has_dy(size_t i) const { return cotangents_[i].defined(); }
  Var dy(size_t i = 0) const;  // zeros of the output's type when there is no cotangent
  // For vjp_all:
  bool needs(size_t i) const { return needs_[i]; }
  void set(size_t i, const Var& grad) { grads_[i] = grad.value(); }

 private:
  std::span<const Value> outputs_, cotangents_;
  std::span<const bool> needs_;
  std::span<Value> grads_;
};

// The rule of a pointwise op computes in the dtype that the op computed in: operands of other dtypes are cast to it.
// In half precision the derivative of an op with one argument, or with kWidens, is computed in float32: from the result
// before rounding if the op saves its arguments (see saved_inputs).
// Fills `wide` with the inputs for the rule and changes outputs and cotangents. Returns false if there is nothing to
// cast.
bool widen_rule(Context& ctx, const OpDef& op, const Attrs& attrs, std::span<const Value> inputs,
                std::span<Value> outputs, std::span<Value> cotangents, SmallVector<Value, 3>& wide);

// The outputs of the op by its decomposition.
Values decomposed(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs);

}  // namespace pg
