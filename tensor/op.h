// OpDef: one op, one row of data. Everything else (Lua functions and methods, argument checks, help,
// files, tests, gradients) loops over the registry.
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
  kView = 1 << 2,           // `view` gives an alias of input 1
  kRandom = 1 << 3,         // has an AttrDef of kind kRandom; takes one tick when applied
  kEffect = 1 << 4,         // must not be dropped, merged or reordered
  kNoGrad = 1 << 5,         // not differentiable: outputs are constants to the tape
  kCommutative = 1 << 6,    // f(x, y) has the bits of f(y, x), all NaNs taken for one
  kDynamicShape = 1 << 7,   // the output's shape depends on values (infer gives -1 dims): eager only
  kInPlace = 1 << 8,        // output i may reuse the buffer of input i when it is uniquely owned and of the same type
  kHidden = 1 << 9,         // part of another op's derivative or decomposition; not shown to scripts
  kFunctionOnly = 1 << 10,  // pg.name(...) but no method
  kNumberOk = 1 << 11,      // inputs may be numbers though the op is not pointwise (they become 0-dim tensors)
  kWeakNumber = 1 << 12,    // the last input may be a number and stays one (Infer::is_number); kernels get a 0-dim view
  kListOutput = 1 << 13,    // any number of outputs, which scripts get as one array table
  // What graph passes ask. An op without one is left as it is. tests/tensor/test_traits.cpp checks them by running the
  // ops.
  kTotal = 1 << 14,       // no element of its operands is refused; see cannot_fail for views and pointwise ops
  kRefuses = 1 << 15,     // pointwise: refuses some integers as input 2 (a divisor of 0, a negative exponent)
  kIdempotent = 1 << 16,  // f(f(x)) is f(x)
  kInvolution = 1 << 17,  // f(f(x)) is x, where f(x) has the dtype of x
  kReshape = 1 << 18,     // the elements of input 1 in their order, under the shape of the result
  kPermute = 1 << 19,     // a view of input 1 with its dims in another order
  kExpand = 1 << 20,      // a view of input 1, broadcast to the shape of the result
  kCopies = 1 << 21,      // with kView: scripts ask for new elements, which a view stands in for where it can
  kRowwise = 1 << 22,     // over rows of its one input, with one dim more in front, it gives the rows; see over_rows
  kPick = 1 << 23,        // reads a table at the positions in its other input, the one that takes only integers
  kProduct = 1 << 24,     // the matrix product of its two inputs, a 1-dim one as a row or a column
  kChannels = 1 << 25,    // a linear map of (x, weight, bias or none); where the ranks of weight and result are equal,
                          // dim 2 of the result, dim 1 of weight and the dim of bias are its channels
  kCheap = 1 << 26,       // to compute output 1 again costs no more than to read it
  kUnset = 1 << 27,       // the elements are not determined: applied twice it may give others
  kIndexing = 1 << 28,  // x[…] or x[…] = value: files may hold it though hidden, scripts may not change what it reads
  kBodies = 1 << 29,    // runs the programs in its attributes; only in graphs, whose executor is its kernel. Its inputs
                        // may be on several devices
};

// How a pointwise op's dtype follows from its promoted inputs.
enum class Result : uint8_t {
  kPromote,  // add, maximum
  kFloat,    // exp, div: integers give float32
  kBool,     // comparisons; computed in the promoted dtype
  kSame,     // neg, relu: the dtype of the input, bool refused
  kInteger,  // integers and bool only
};

enum class Arity : uint8_t { kOne, kOptional, kList };

enum DTypes : uint16_t {  // masks of acceptable dtypes
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
  double low = -2, high = 2;  // domain of generated test data
  const char* doc = "";
};

// Resolves attributes by name against an op's row.
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

// Shape and dtype inference: reads input types, fills `outputs`. Inputs that are numbers or absent have no type.
class Infer : public AttrReader {
 public:
  Infer(const OpDef& op, const Attrs& attrs, std::span<const Value> inputs) : AttrReader(op, attrs), inputs_(inputs) {}
  size_t count() const { return inputs_.size(); }  // flattened inputs
  bool has(size_t i) const { return inputs_[i].defined(); }
  bool is_number(size_t i) const { return inputs_[i].is_number(); }
  const Type& type(size_t i) const { return inputs_[i].type(); }
  const Dims& shape(size_t i) const { return inputs_[i].shape(); }
  DType dtype(size_t i) const { return inputs_[i].dtype(); }
  int rank(size_t i) const { return inputs_[i].rank(); }
  std::span<const Value> inputs() const { return inputs_; }

  // `op: bad argument 'input i' (expected …, got float32 2x3)`
  [[noreturn]] void bad_input(size_t i, const std::string& expected) const;
  [[noreturn]] void bad_attr(const char* name, const std::string& expected) const;
  void require_rank(size_t i, int rank) const;

  void output(DType dtype, Dims shape);  // on the device of the inputs
  SmallVector<Type, 2> outputs;

 private:
  std::span<const Value> inputs_;
};

// A view: fill `strides` and `offset` (in elements, relative to the input's) for the inferred output shape;
// false when this layout cannot be a view (then the op's kernel copies).
struct ViewArgs : AttrReader {
  const Array& input;
  const Dims& out_shape;
  Dims strides;
  int64_t offset = 0;
  int output;  // which output, for ops with several
  ViewArgs(const OpDef& op, const Attrs& attrs, const Array& in, const Dims& out, int output_index = 0)
      : AttrReader(op, attrs), input(in), out_shape(out), output(output_index) {}
};

class Var;  // tensor/rule.h
class Vjp;
class Rule;
using InferFn = void (*)(Infer& c);
using ViewFn = bool (*)(ViewArgs& c);
using GradFn = Var (*)(Vjp& c);
using GradAllFn = void (*)(Vjp& c);
using DecomposeFn = std::vector<Var> (*)(Rule& c);
using FillFn = double (*)(const AttrReader& c);
using CompleteFn = void (*)(Context& ctx, const OpDef& op, std::span<const Value> inputs, Attrs& attrs);

// An activation as the end of the kernel of a product: the attributes of linear_act and conv_act.
struct Epilogue {
  const char* activation;
  double slope = 0.01;
};
using EpilogueFn = Epilogue (*)(const AttrReader& c);

struct OpDef {
  const char* name;
  const char* doc;
  const char* example = nullptr;  // Lua, run by the tests; may use pg and must return something
  std::vector<InputDef> inputs;
  std::vector<AttrDef> attrs = {};
  const char* signature = nullptr;  // positional order where it is not inputs, then attrs: "x dim index"
  std::vector<const char*> outputs = {"out"};
  Result result = Result::kPromote;  // of pointwise ops
  InferFn infer = nullptr;
  ViewFn view = nullptr;
  std::vector<GradFn> vjp = {};    // one expression an input (nullptr: no gradient); written with ops
  GradAllFn vjp_all = nullptr;     // instead of vjp, where inputs are lists or share work
  const char* vjp_uses = nullptr;  // names of inputs and outputs whose values vjp reads; null: all; "": none
  DecomposeFn decompose = nullptr;
  uint32_t traits = 0;
  // With kInPlace: the input definitions that the outputs rewrite, in the order of the outputs. Empty: output i
  // rewrites input i.
  std::vector<int> in_place = {};
  FillFn fill = nullptr;          // the number that all elements are; null: no fill
  EpilogueFn epilogue = nullptr;  // of an activation that products can end with
  // Of such a product: the op for both. Its first attributes are those of the product.
  const OpDef& (*with_epilogue)() = nullptr;
  CompleteFn complete = nullptr;  // where a script calls the op: sets attributes that depend on the inputs
  int version = 1;

  // Filled by the registry.
  int id = -1;
  KernelRow cpu_kernel = {"", nullptr};              // the CPU's row, which most applications need
  uint32_t saved_inputs = ~0u, saved_outputs = ~0u;  // bit masks from vjp_uses, by definition index
  int random_attr = -1;
  int training_attr = -1;  // an attribute named `training`: nil is resolved to the context's mode when applied

  bool has(Traits t) const { return traits & t; }
  bool differentiable() const { return !vjp.empty() || vjp_all; }
  int attr_index(const char* attr) const;  // -1 when there is none
};

// The op registry, filled once from the explicit list in tensor/ops/all.cpp.
class Registry {
 public:
  const OpDef* find(std::string_view name) const;
  const OpDef& require(std::string_view name) const;                   // throws Error with a suggestion
  std::span<const OpDef* const> ops() const { return ops_; }           // sorted by name
  KernelRow kernel(const OpDef& op, Device device) const;              // fn is null when the device has none
  void add_kernels(int device_kind, std::span<const KernelRow> rows);  // all or, on an exception, none

  void add(std::span<const OpDef> rows);  // copies the rows; used by tensor/ops/all.cpp and registry() only

 private:
  std::vector<const OpDef*> ops_;
  std::vector<const OpDef*> by_id_;
  std::vector<KernelRow>
      kernels_[kMaxDeviceKinds];  // [device kind][op id]; in place, so that loading a device moves nothing
};
Registry& registry();

// Rows of a layer above tensor/: a static object of this type puts them into the registry.
struct MoreRows {
  using Rows = std::vector<OpDef> (*)();
  Rows rows;
  const MoreRows* next;
  explicit MoreRows(Rows f) : rows(f), next(first) { first = this; }
  static inline constinit const MoreRows* first = nullptr;
};

// A string literal as a template argument.
template <size_t N>
struct OpName {
  char text[N];
  constexpr OpName(const char (&s)[N]) { std::copy_n(s, N, text); }  // NOLINT
};

// Every name that C++ asks for is in this list before main. registry() throws when one of them has no row.
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

// The nearest name within two edits or sharing a long prefix; empty when nothing is near.
std::string suggest(std::string_view name, std::span<const std::string_view> known);

// A complete Attrs for op: defaults, then the given values by name. Throws for unknown names.
using AttrList = std::initializer_list<std::pair<const char*, AttrValue>>;
Attrs make_attrs(const OpDef& op, AttrList given = {});

// The flattened input, of `count`, whose buffer output i may take (see OpDef::in_place).
size_t rewritten_input(const OpDef& op, size_t count, size_t i);

// Whether the op gives a result of this dtype whatever its operands hold.
inline bool cannot_fail(const OpDef& op, DType result) {
  return op.view || op.has(kTotal) || (op.has(kPointwise) && (is_float(result) || !op.has(kRefuses)));
}

// Of an op with kRowwise: the attributes for all rows at once, where `attrs` are those for one of `rank` dims. Dims
// count from the new one on. False where they name no dim of the row.
bool over_rows(const OpDef& op, int rank, Attrs& attrs);

// Index of the input definition that flattened input i of `count` belongs to.
int input_definition(const OpDef& op, size_t count, size_t i);

template <class T>
const T& KernelArgs::attr(const char* name) const {
  return AttrReader(op, attrs).attr<T>(name);
}
inline bool KernelArgs::has_attr(const char* name) const { return AttrReader(op, attrs).has_attr(name); }
inline int KernelArgs::dim(const char* name, int rank) const { return AttrReader(op, attrs).dim(name, rank); }
inline Dims KernelArgs::dims(const char* name, int rank) const { return AttrReader(op, attrs).dims(name, rank); }

}  // namespace pg
