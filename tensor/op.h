// OpDef: one op as one row of data. Lua functions and methods, argument checks, help, files, tests and gradients all
// loop over the registry of these rows.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "tensor/attr.h"
#include "tensor/error.h"
#include "tensor/kernel.h"
#include "tensor/small_vector.h"
#include "tensor/value.h"

namespace pg {

class Context;
struct OpDef;

enum Traits : uint32_t {
  kPointwise = 1 << 0,  // inputs broadcast; numbers allowed; dtype by `result`; infer may be null
  kReduction = 1 << 1,
  kView = 1 << 2,    // `view` makes an alias of input 1
  kRandom = 1 << 3,  // has an AttrDef of kind kRandom; takes one tick when applied
  // Runs once per run, in the order of the script, whether or not its outputs are read. No pass drops, merges or moves
  // it. Only a gradient that computes forward again may run an effect with outputs again: create_graph, a while_loop
  // without a limit, a loop with checkpoints, and a second gradient through one loop.
  kEffect = 1 << 4,
  kNoGrad = 1 << 5,        // not differentiable: the tape treats outputs as constants
  kCommutative = 1 << 6,   // f(x, y) has the same bits as f(y, x), except for the bits of NaNs
  kDynamicShape = 1 << 7,  // the output's shape depends on values (infer sets -1 dims): eager only
  kInPlace = 1 << 8,       // output i may reuse the buffer of input i when that is uniquely owned and has the same type
  kHidden = 1 << 9,        // part of another op's derivative or decomposition; scripts cannot see it
  kFunctionOnly = 1 << 10,  // pg.name(...) but no method
  kNumberOk = 1 << 11,      // inputs may be numbers though the op is not pointwise (they become 0-dim tensors)
  kWeakNumber = 1 << 12,    // the last input may be a number and stays one (Infer::is_number); kernels get a 0-dim view
  kListOutput = 1 << 13,    // any number of outputs, which scripts get as one array
  // Properties that graph passes rely on; an op without them is not changed. tests/tensor/test_traits.cpp checks them
  // by running the ops.
  kTotal = 1 << 14,       // accepts all elements of its operands; see cannot_fail for views and pointwise ops
  kRefuses = 1 << 15,     // pointwise: throws for some integers in input 2 (a divisor of 0, a negative exponent)
  kIdempotent = 1 << 16,  // f(f(x)) is f(x)
  kInvolution = 1 << 17,  // f(f(x)) is x, when f(x) has the dtype of x
  kReshape = 1 << 18,     // the elements of input 1 in the same order, with another shape
  kPermute = 1 << 19,     // a view of input 1 with its dims in another order
  kExpand = 1 << 20,      // a view of input 1, broadcast to the shape of the result
  kCopies = 1 << 21,      // with kView: a copy, which `view` saves where it can
  kRowwise = 1 << 22,     // stacked inputs give the stacked results; see over_rows
  kPick = 1 << 23,        // reads a table at the positions in its other input, the only input that must be integer
  kProduct = 1 << 24,     // the matrix product of its two inputs; a 1-dim input is a row or a column
  kChannels = 1 << 25,    // a linear map of (x, weight, optional bias); when weight and result have the same rank, the
                          // channels are dim 2 of the result, dim 1 of weight and the dim of bias
  kCheap = 1 << 26,       // recomputing output 1 costs no more than reading it
  kUnset = 1 << 27,       // the elements are not defined: a second application may return others
  kIndexing = 1 << 28,  // x[…] or x[…] = value: files may contain it even if hidden; results of reads refuse writes
  kBodies = 1 << 29,    // runs the programs in its attributes; only in graphs, and their executor runs it. Its inputs
                        // may be on several devices
  kWidens = 1 << 30,    // its decomposition and derivative, for inputs in half precision: computed in float32, and
                        // rounded once at the end
};

// How the dtype of a pointwise op follows from its promoted inputs.
enum class Result : uint8_t {
  kPromote,  // add, maximum
  kFloat,    // exp, div: integers give float32
  kBool,     // comparisons; computed in the promoted dtype
  kSame,     // neg, relu: the dtype of the input; bool is refused
  kInteger,  // integers and bool only
};

enum class Arity : uint8_t { kOne, kOptional, kList };

enum DTypes : uint16_t {  // sets of accepted dtypes
  kAnyDType = 0x1ff,
  kFloating = 0x1e0,
  kIntegral = 0x1e,  // without bool
  kNumeric = 0x1fe,  // all but bool
  kBoolOnly = 0x1,
  kIndex = 0x18,  // int32, int64
};
inline bool accepts(uint16_t mask, DType t) { return mask >> int(t) & 1; }

struct InputDef {
  const char* name;
  uint16_t dtypes = kAnyDType;
  Arity arity = Arity::kOne;
  double low = -2, high = 2;  // the domain of generated test data
  const char* doc = "";
};

// Reads the attributes of one application by name.
class AttrReader {
 public:
  AttrReader(const OpDef& op, const Attrs& attrs) : op_(op), attrs_(attrs) {}
  const AttrValue& raw(const char* name) const;
  template <class T>
  const T& attr(const char* name) const {
    return std::get<T>(raw(name));
  }
  bool has_attr(const char* name) const { return raw(name).index() != 0; }
  int dim(const char* name, int rank) const;
  Dims dims(const char* name, int rank) const;
  const OpDef& op() const { return op_; }
  const Attrs& attrs() const { return attrs_; }

 private:
  const OpDef& op_;
  const Attrs& attrs_;
};

// Shape and dtype inference: a rule reads the input types and fills `outputs`. Inputs that are numbers or absent have
// no type.
class Infer : public AttrReader {
 public:
  Infer(const OpDef& op, const Attrs& attrs, std::span<const Value> inputs) : AttrReader(op, attrs), inputs_(inputs) {}
  size_t count() const { return inputs_.size(); }  // of the flattened inputs
  bool has(size_t i) const { return inputs_[i].defined(); }
  bool is_number(size_t i) const { return inputs_[i].is_number(); }
  const Type& type(size_t i) const { return inputs_[i].type(); }
  const Dims& shape(size_t i) const { return inputs_[i].shape(); }
  DType dtype(size_t i) const { return inputs_[i].dtype(); }
  int rank(size_t i) const { return inputs_[i].rank(); }
  std::span<const Value> inputs() const { return inputs_; }

  // Throws `op: bad argument 'input i' (expected …, got float32 2x3)`.
  [[noreturn]] void bad_input(size_t i, const std::string& expected) const;
  [[noreturn]] void bad_attr(const char* name, const std::string& expected) const;
  void require_rank(size_t i, int rank) const;
  void require_holds(DType dtype, const char* name) const;  // the dtype can hold the number, which becomes an element

  void output(DType dtype, Dims shape);  // on the device of the inputs
  SmallVector<Type, 2> outputs;

 private:
  std::span<const Value> inputs_;
};

// The arguments of a ViewFn. It sets `strides` and `offset` (in elements, relative to the input) for the inferred
// output shape. It returns false when this layout has no such view; the op's kernel then copies.
struct ViewArgs : AttrReader {
  const Array& input;
  const Dims& out_shape;
  Dims strides;
  int64_t offset = 0;
  int output;  // index of the output, for ops with several
  ViewArgs(const OpDef& op, const Attrs& attrs, const Array& in, const Dims& out, int output_index = 0)
      : AttrReader(op, attrs), input(in), out_shape(out), output(output_index) {}
};

class Var;  // tensor/rule.h
class Vjp;
class Rule;
class Expansion;
using InferFn = void (*)(Infer& c);
using ViewFn = bool (*)(ViewArgs& c);
using GradFn = Var (*)(Vjp& c);
using GradAllFn = void (*)(Vjp& c);
using DecomposeFn = std::vector<Var> (*)(Rule& c);
using ExpandFn = std::vector<Var> (*)(Expansion& c);
using FillFn = double (*)(const AttrReader& c);
using DrawsFn = bool (*)(const AttrReader& c);
// Turns the attributes of version `version` of the op into those of version + 1. Whole numbers are int64_t, others
// double, lists Ints or Floats; names of dtypes and devices are strings. Sets the old default of an absent attribute
// if the default has changed. May throw Error.
using UpgradeFn = void (*)(int version, NamedAttrs& attrs);
// The number of multiply-adds of one application, from the types of its tensors.
using MultiplyAddsFn = double (*)(std::span<const View> in, std::span<const View> out);
using CompleteFn = void (*)(Context& ctx, const OpDef& op, std::span<Value> inputs, Attrs& attrs);

// An activation that the kernel of a product applies at its end: the attributes of linear_act and conv_act.
struct Epilogue {
  const char* activation;
  double slope = 0.01;
};
using EpilogueFn = Epilogue (*)(const AttrReader& c);

// Another name of an op in scripts; graphs and files hold only the op's own name. With `attr` a call by this name gives
// that attribute the value: x:float() is x:to("float32").
struct Alias {
  const char* name;
  const char* attr;
  AttrValue value;
  Alias(const char* alias, const char* fixed = nullptr, AttrValue to = {})  // NOLINT: a name is an alias
      : name(alias), attr(fixed), value(std::move(to)) {}
};

struct OpDef {
  const char* name;
  const char* doc;
  const char* example = nullptr;  // Lua code that the tests run; may use pg and must return something
  std::vector<Alias> aliases = {};
  std::vector<InputDef> inputs;
  std::vector<AttrDef> attrs = {};
  // What scripts may pass by name besides the attributes. `expand` applies the call without them, with other attributes
  // or with other ops, so that no graph and no file holds them and calls without them cost nothing.
  std::vector<AttrDef> options = {};
  const char* signature = nullptr;  // order of positional arguments if not inputs, then attrs: "x dim index"
  std::vector<const char*> outputs = {"out"};
  Result result = Result::kPromote;  // for pointwise ops
  InferFn infer = nullptr;
  ViewFn view = nullptr;
  std::vector<GradFn> vjp = {};    // one rule per input (nullptr: no gradient), written with ops
  GradAllFn vjp_all = nullptr;     // instead of vjp, when inputs are lists or share work
  const char* vjp_uses = nullptr;  // inputs and outputs whose values vjp reads; null: all; "": none
  DecomposeFn decompose = nullptr;
  ExpandFn expand = nullptr;  // required with options
  uint32_t traits = 0;
  // With kInPlace: for each output, the index of the input definition that it overwrites. Empty: output i overwrites
  // input i.
  std::vector<int> in_place = {};
  DrawsFn draws = nullptr;        // with kRandom: whether an application draws numbers; null: each does
  FillFn fill = nullptr;          // returns the value of all elements; null: the op is no fill
  EpilogueFn epilogue = nullptr;  // for an activation that the kernel of a product can apply
  // For such a product: returns the op of product and activation. Its first attributes are those of the product.
  const OpDef& (*with_epilogue)() = nullptr;
  // Returns the op of the first output for images (N, spatial..., C), with the same attributes, or null for an image
  // without N. `rank`: of the image, which is the first input.
  const OpDef* (*channels_last)(const AttrReader& c, int rank) = nullptr;
  const char* accepts = nullptr;  // an op that checks elements: the op all of whose results pass in inputs 2 and later
  CompleteFn complete = nullptr;  // sets attributes that depend on the inputs, may replace inputs; for calls of scripts
  int version = 1;                // of the meaning of the inputs and attributes; files store it
  UpgradeFn upgrade = nullptr;    // required if the version is above 1
  MultiplyAddsFn multiply_adds = nullptr;  // of a product or convolution

  // Set by the registry.
  int id = -1;
  KernelRow cpu_kernel = {"", nullptr};              // stored here because most applications need it
  uint32_t saved_inputs = ~0u, saved_outputs = ~0u;  // bit masks from vjp_uses, by definition index
  int random_attr = -1;
  int training_attr = -1;  // of the attribute `training`; nil becomes the context's mode when the op is applied

  bool has(Traits t) const { return traits & t; }
  bool differentiable() const { return !vjp.empty() || vjp_all; }
  int attr_index(const char* attr) const;  // -1 when there is none
};

// Which inputs a derivative reads, by definition index. Functions of one argument whose rules read the result keep the
// argument instead in half precision: their derivatives start from the result before rounding.
inline bool reads_argument(const OpDef& op, DType result) {
  return size_of(result) == 2 && op.has(kPointwise) && op.inputs.size() == 1 && op.result == Result::kFloat &&
         op.saved_outputs && op.differentiable();
}
inline uint32_t saved_inputs(const OpDef& op, DType result) {
  return reads_argument(op, result) ? 1u : op.saved_inputs;
}
inline uint32_t saved_outputs(const OpDef& op, DType result) {
  return reads_argument(op, result) ? 0 : op.saved_outputs;
}

struct AliasOf {
  const OpDef* op;
  const Alias* alias;
};

// The row with these aliases, for rows that functions make.
inline OpDef also(std::vector<Alias> aliases, OpDef row) {
  row.aliases = std::move(aliases);
  return row;
}

// The op registry. It is filled once, from the list in tensor/ops/all.cpp.
class Registry {
 public:
  const OpDef* find(std::string_view name) const;
  const OpDef& require(std::string_view name) const;             // throws Error with a suggestion
  std::span<const OpDef* const> ops() const { return ops_; }     // sorted by name
  std::span<const AliasOf> aliases() const { return aliases_; }  // sorted by name
  const AliasOf* find_alias(std::string_view name) const;
  KernelRow kernel(const OpDef& op, Device device) const;              // fn is null when the device has none
  void add_kernels(int device_kind, std::span<const KernelRow> rows);  // adds all rows, or none on an exception

  void add(std::span<const OpDef> rows);  // copies the rows; only for tensor/ops/all.cpp and registry()
  void add_aliases();                     // of all rows; throws if a name has two meanings

 private:
  std::vector<const OpDef*> ops_;
  std::vector<const OpDef*> by_id_;
  std::vector<AliasOf> aliases_;
  std::vector<KernelRow>
      kernels_[kMaxDeviceKinds];  // [device kind][op id]; a fixed array, so that loading a device moves nothing
};
Registry& registry();

// Adds rows of a layer above tensor/, and their CPU kernels, to the registry. Use it for static objects only.
struct MoreRows {
  using Rows = std::vector<OpDef> (*)();
  using Kernels = std::vector<KernelRow> (*)();
  Rows rows;
  Kernels kernels;
  const MoreRows* next;
  explicit MoreRows(Rows f, Kernels k = nullptr) : rows(f), kernels(k), next(first) { first = this; }
  static inline constinit const MoreRows* first = nullptr;
};

// A string literal as a template argument.
template <size_t N>
struct OpName {
  char text[N];
  constexpr OpName(const char (&s)[N]) { std::copy_n(s, N, text); }  // NOLINT
};

// The list of all op names that C++ code uses, complete before main. registry() throws when one of them has no row.
struct NamedOp {
  const char* name;
  const NamedOp* next;
  explicit NamedOp(const char* text) : name(text), next(first) { first = this; }
  static inline constinit const NamedOp* first = nullptr;
};
template <OpName name>
inline const NamedOp named_op{name.text};

template <OpName name>
const OpDef& op_named() {
  [[maybe_unused]] static constexpr const NamedOp* kUse = &named_op<name>;
  static const OpDef& def = registry().require(name.text);
  return def;
}

// The nearest name within two edits (one for 2 to 4 letters), by `Nearness` in op.cpp; else "".
std::string suggest(std::string_view name, std::span<const std::string_view> known);
// "; did you mean 'x'?" with that name, or "".
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known);

// The words of a text that spaces separate; none of null.
std::vector<std::string> words(const char* text);

// Returns all attributes of an op: defaults, then the values of `like` for the attributes that its op has too, then the
// given values. Throws for unknown names.
using AttrList = std::initializer_list<std::pair<const char*, AttrValue>>;
Attrs make_attrs(const OpDef& op, AttrList given = {}, const AttrReader* like = nullptr);

// Returns the index of the flattened input, of `count`, whose buffer output i may reuse (see OpDef::in_place).
size_t rewritten_input(const OpDef& op, size_t count, size_t i);

// Whether the op accepts all elements of its operands when the result has this dtype.
inline bool cannot_fail(const OpDef& op, DType result) {
  return op.view || op.has(kTotal) || (op.has(kPointwise) && (is_float(result) || !op.has(kRefuses)));
}

// For an op with kRowwise: changes the attributes for an input of `rank` dims into those for a batch of such inputs,
// with one more leading dim. Returns false when they name a dim that the input does not have.
bool over_rows(const OpDef& op, int rank, Attrs& attrs);

// Returns the index of the input definition that flattened input i of `count` belongs to.
int input_definition(const OpDef& op, size_t count, size_t i);

template <class T>
const T& KernelArgs::attr(const char* name) const {
  return AttrReader(op, attrs).attr<T>(name);
}
inline bool KernelArgs::has_attr(const char* name) const { return AttrReader(op, attrs).has_attr(name); }
inline int KernelArgs::dim(const char* name, int rank) const { return AttrReader(op, attrs).dim(name, rank); }
inline Dims KernelArgs::dims(const char* name, int rank) const { return AttrReader(op, attrs).dims(name, rank); }

}  // namespace pg
