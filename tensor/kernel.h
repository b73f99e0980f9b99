// How kernels are called: resolved views in, resolved views out.
#pragma once
#include <memory>
#include <span>

#include "tensor/attr.h"
#include "tensor/function_ref.h"
#include "tensor/value.h"

namespace pg {

struct OpDef;

// A non-owning look at an array (or at a number, as a 0-dim array of the dtype the kernel computes in).
struct View {
  const Type* type = nullptr;
  const Dims* strides = nullptr;  // in elements
  void* data = nullptr;           // first element; nullptr for an optional input that is absent

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
  std::span<const View> in;   // flattened: list inputs in a row; absent optional inputs are empty views
  std::span<const View> out;  // allocated and contiguous; of an output with dynamic shape: empty until resized
  const Attrs& attrs;
  // For ops with the trait kDynamicShape: allocates output i.
  FunctionRef<View(int i, const Dims& shape)> allocate;
  // Of a device other than the CPU: the stream to queue the work on, and the start of the text of an
  // error that arrives late (see tensor/device_table.h); null when unknown.
  void* stream = nullptr;
  const char* place = nullptr;

  template <class T>
  const T& attr(const char* name) const;        // throws std::bad_variant_access on a wrong type
  bool has_attr(const char* name) const;        // not nil
  int dim(const char* name, int rank) const;    // a kDim attribute as a 0-based index
  Dims dims(const char* name, int rank) const;  // a kDims attribute as 0-based indices; all dims when nil or empty
};

using KernelFn = void (*)(const KernelArgs& args);

enum KernelFlags : uint8_t {
  kContiguousInputs = 0,  // inputs arrive row-major without gaps, never as numbers
  kStridedInputs = 1,     // any strides
};

// A kernel made ready for the types and attributes of one node of a plan. Immutable; runs may overlap, each with
// scratch memory of its own.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const = 0;

  // Brings input `packed_input`, row-major, in the layout that `run` may be given as `packed` instead; the results are
  // the same bits. Called once for many runs on one array.
  virtual void pack(const View&, void*) const {}
  // Whether the other packs an array of the same type into the same bytes.
  virtual bool packs_like(const PreparedKernel&) const { return false; }

  size_t scratch_bytes = 0;
  int packed_input = -1;  // -1: none pays
  size_t packed_bytes = 0;
};

// Null where the kernel itself is as good. The views of `args` have types and strides but no data. Bit i of `lasting`:
// input i may stay the same over many runs, so that packing it pays.
using PrepareFn = std::unique_ptr<const PreparedKernel> (*)(const KernelArgs& args, uint32_t lasting);

// One row of a device's explicit list of kernels.
struct KernelRow {
  const char* op;
  KernelFn fn;
  uint8_t flags = kContiguousInputs;
  PrepareFn prepare = nullptr;
};

}  // namespace pg
