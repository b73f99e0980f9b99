// perigee_tensor_*
#include <algorithm>
#include <cstdint>

#include "tensor/context.h"
#include "vm/host/handles.h"

using namespace pg;
using namespace pg::host;

perigee_tensor::perigee_tensor(Value v) : value(v.detached()), runtime(Ref<Runtime>(&Runtime::current())) {}

const void* perigee_tensor::data() {
  const Array& array = value.array();
  if (array.contiguous && host_reads(array.type.device)) return array.data();
  const std::lock_guard hold(lock_);
  if (!whole_.defined()) {
    const Border border(*runtime);
    Context ctx;
    whole_ = to_contiguous(ctx, to_device(ctx, value, Device()));
  }
  return whole_.array().data();
}

namespace {

Type type_of(const char* function, perigee_dtype dtype, int rank, const int64_t* shape) {
  need(int(dtype) >= 0 && int(dtype) < kDTypeCount, function, "dtype", "a perigee_dtype");
  need(rank >= 0 && rank <= kMaxRank, function, "rank", "0 to 12");
  need(shape || rank == 0, function, "shape");
  Type type;
  type.dtype = DType(dtype);
  for (int d = 0; d < rank; ++d) type.shape.push_back(shape[d]);
  checked_numel(function, type.shape);
  return type;
}
static_assert(int(PERIGEE_FLOAT64) == int(DType::kFloat64) && int(PERIGEE_INT64) == int(DType::kInt64) &&
              int(PERIGEE_FLOAT16) == int(DType::kFloat16) && int(PERIGEE_FLOAT64) + 1 == kDTypeCount);

// The elements from the first to one past the last that the strides reach.
int64_t extent_of(const Type& type, const Dims& strides) {
  int64_t last = 0;
  for (int d = 0; d < type.shape.size(); ++d) {
    if (type.shape[d] == 0) return 0;
    last = plus(last, times(type.shape[d] - 1, strides[d]));
  }
  return plus(last, 1);
}

// Whether all elements of a bool tensor are 0 or 1.
bool holds_bools(const unsigned char* data, const Dims& shape, const Dims& strides, int dim = 0) {
  if (dim == shape.size()) return *data <= 1;
  if (dim + 1 == shape.size() && strides[dim] == 1)
    return std::all_of(data, data + shape[dim], [](unsigned char b) { return b <= 1; });
  for (int64_t i = 0; i < shape[dim]; ++i)
    if (!holds_bools(data + i * strides[dim], shape, strides, dim + 1)) return false;
  return true;
}

}  // namespace

perigee_status perigee_tensor_create(perigee_runtime* runtime, perigee_dtype dtype, int rank, const int64_t* shape,
                                     perigee_tensor** out) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_tensor_create";
    need(out, kName, "out");
    const Border border(runtime_of(runtime, kName));
    const Type type = type_of(kName, dtype, rank, shape);
    // Results may be written into the memory, so scripts and plans must treat it as the host's.
    Ref<Buffer> zeros = make_filled(type, 0).array().buffer;
    const auto drop = [](void* user, void*) { static_cast<Buffer*>(user)->release(); };
    const Ref<perigee_tensor> tensor = wrap(kName, zeros->data, DType(dtype), rank, shape, nullptr, drop, zeros.get());
    zeros->retain();
    tensor->is_target = true;
    *out = give(tensor);
  });
}

Ref<perigee_tensor> pg::host::wrap(const char* function, void* data, DType dtype, int rank, const int64_t* shape,
                                   const int64_t* strides, void (*release)(void* user, void* data), void* user) {
  const Type type = type_of(function, perigee_dtype(dtype), rank, shape);
  need(data || numel(type.shape) == 0, function, "data");
  need(reinterpret_cast<uintptr_t>(data) % size_t(size_of(type.dtype)) == 0, function, "data",
       "an address that is a multiple of the element's size");
  Ref<Array> array = Array::make(type);
  for (int d = 0; strides && d < rank; ++d) {
    need(strides[d] >= 0, function, "strides", "no negative stride");
    array->strides[d] = strides[d];
  }
  array->contiguous = is_contiguous(type.shape, array->strides);
  const Bytes bytes = Bytes::of(extent_of(type, array->strides), uint64_t(size_of(type.dtype)));
  need(bytes.count() < uint64_t(kMostSize), function, "strides", "strides within the memory of a process");
  need(type.dtype != DType::kBool || holds_bools(static_cast<unsigned char*>(data), type.shape, array->strides),
       function, "data", "bools that are 0 or 1");
  // The handle is made first: after the memory is borrowed, nothing may fail.
  Ref<perigee_tensor> tensor(new perigee_tensor(Value(array)));
  array->buffer = Buffer::borrow(data, bytes, release, user);
  return tensor;
}

perigee_status perigee_tensor_wrap(perigee_runtime* runtime, void* data, perigee_dtype dtype, int rank,
                                   const int64_t* shape, const int64_t* strides,
                                   void (*release)(void* user, void* data), void* user, perigee_tensor** out) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_tensor_wrap";
    need(out, kName, "out");
    const Border border(runtime_of(runtime, kName));
    const Ref<perigee_tensor> tensor = wrap(kName, data, DType(dtype), rank, shape, strides, release, user);
    tensor->is_target = true;
    *out = give(tensor);
  });
}

perigee_tensor* perigee_tensor_retain(perigee_tensor* tensor) {
  if (tensor) tensor->retain();
  return tensor;
}

void perigee_tensor_release(perigee_tensor* tensor) {
  if (tensor) tensor->release();
}

const void* perigee_tensor_data(perigee_tensor* tensor) {
  const void* data = nullptr;
  guarded(PERIGEE_INTERNAL, [&] {
    need(tensor, "perigee_tensor_data", "tensor");
    data = tensor->data();
  });
  return data;
}

perigee_dtype perigee_tensor_dtype(const perigee_tensor* tensor) {
  return tensor ? perigee_dtype(tensor->value.dtype()) : PERIGEE_BOOL;
}

int perigee_tensor_rank(const perigee_tensor* tensor) { return tensor ? tensor->value.rank() : -1; }

const int64_t* perigee_tensor_shape(const perigee_tensor* tensor) {
  return tensor ? tensor->value.shape().begin() : nullptr;
}

size_t perigee_tensor_bytes(const perigee_tensor* tensor) {
  return tensor ? bytes_of(tensor->value.type()).count() : 0;
}
