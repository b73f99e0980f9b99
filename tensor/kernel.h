// The calling convention of kernels: views of the inputs in, views of the outputs out.
#pragma once
#include <memory>
#include <span>

#include "tensor/attr.h"
#include "tensor/function_ref.h"
#include "tensor/value.h"

namespace pg {

struct OpDef;

// A non-owning reference to an array, or to a number as a 0-dim array of the dtype that the kernel computes in.
struct View {
  const Type* type = nullptr;
  const Dims* strides = nullptr;  // in elements
  void* data = nullptr;           // the first element; nullptr for an absent optional input

  explicit operator bool() const { return type != nullptr; }
  DType dtype() const { return type->dtype; }
  const Dims& shape() const { return type->shape; }
  int rank() const { return type->shape.size(); }
  int64_t size(int dim) const { return type->shape[dim]; }
  int64_t numel() const { return pg::numel(type->shape); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct KernelArgs {
  const OpDef& op;
  std::span<const View> in;   // flattened: the elements of list inputs in order; absent optional inputs are empty views
  std::span<const View> out;  // allocated and contiguous; an output of dynamic shape is empty until `allocate`
  const Attrs& attrs;
  // For ops with the trait kDynamicShape: allocates output i and returns it.
  FunctionRef<View(int i, const Dims& shape)> allocate;
  // For devices other than the CPU: the stream to queue the work on, and the start of the text of an error that arrives
  // late (see tensor/device_table.h; null when unknown).
  void* stream = nullptr;
  const char* place = nullptr;

  template <class T>
  const T& attr(const char* name) const;        // throws std::bad_variant_access on a wrong type
  bool has_attr(const char* name) const;        // the attribute is not nil
  int dim(const char* name, int rank) const;    // a kDim attribute as 0-based index
  Dims dims(const char* name, int rank) const;  // a kDims attribute as 0-based indices; all dims when nil or empty
};

using KernelFn = void (*)(const KernelArgs& args);

enum KernelFlags : uint8_t {
  kContiguousInputs = 0,  // inputs are row-major without gaps; numbers only where the op has kWeakNumber
  kStridedInputs = 1,     // any strides
  kHasWeight = 2,         // the second input is a weight, of which eager calls keep the packed form
};

// A kernel prepared for the types and attributes of one node of a plan. Immutable: runs may overlap when each has its
// own scratch memory.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const = 0;

  // Converts input `packed_input`, which is row-major, into the layout that `run` takes as `packed`. The results of
  // `run` are the same bits. Called once for many runs on one array.
  virtual void pack(const View&, void*) const {}
  // Whether the other kernel packs an array of the same type into the same bytes.
  virtual bool packs_like(const PreparedKernel&) const { return false; }

  size_t scratch_bytes = 0;
  int packed_input = -1;  // -1: packing no input is worthwhile
  size_t packed_bytes = 0;
};

// Returns null when the unprepared kernel is as fast. The views of `args` have types and strides but no data. Bit i of
// `lasting`: input i may stay the same over many runs, so that packing it is worthwhile.
using PrepareFn = std::unique_ptr<const PreparedKernel> (*)(const KernelArgs& args, uint32_t lasting);

// One row of a device's list of kernels.
struct KernelRow {
  const char* op;
  KernelFn fn;
  uint8_t flags = kContiguousInputs;
  PrepareFn prepare = nullptr;
  // For an op with the channels last: whether it is faster than its plain form for these types. `reorders`: its image
  // still has the channels first. Null: never by itself.
  bool (*pays)(const KernelArgs& args, bool reorders) = nullptr;
};

}  // namespace pg
