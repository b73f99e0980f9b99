// perigee_tensor_from_dlpack and perigee_tensor_to_dlpack: arrays of other libraries without copies.
#include <dlpack/dlpack.h>

#include <optional>

#include "vm/host/handles.h"

using namespace pg;
using namespace pg::host;

namespace {

constexpr int kDLBoolCode = 6;  // since DLPack 0.8

DLDataType code_of(DType dtype) {
  const uint8_t bits = uint8_t(8 * size_of(dtype));
  const uint8_t code = dtype == DType::kBool       ? kDLBoolCode
                       : dtype == DType::kUInt8    ? kDLUInt
                       : dtype == DType::kBFloat16 ? kDLBfloat
                       : is_float(dtype)           ? kDLFloat
                                                   : kDLInt;
  return {code, bits, 1};
}

std::optional<DType> dtype_of(const DLDataType& type) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const DLDataType own = code_of(DType(t));
    if (own.code == type.code && own.bits == type.bits && own.lanes == type.lanes) return DType(t);
  }
  return {};
}

void release_managed(void* user, void*) {
  auto* managed = static_cast<DLManagedTensor*>(user);
  if (managed->deleter) managed->deleter(managed);
}

// A tensor that is handed out. Its deleter may run on any thread, also after the runtime's handle was released.
struct Exported {
  DLManagedTensor managed;
  Ref<perigee_tensor> tensor;
  Dims shape, strides;
};

}  // namespace

perigee_status perigee_tensor_from_dlpack(perigee_runtime* runtime, DLManagedTensor* managed, perigee_tensor** out) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_tensor_from_dlpack";
    need(managed, kName, "managed");
    need(out, kName, "out");
    const Border border(runtime_of(runtime, kName));
    const DLTensor& from = managed->dl_tensor;
    if (from.device.device_type != kDLCPU)
      throw Failure(PERIGEE_UNSUPPORTED, fmt::format("{}: the tensor is not in the memory of the CPU", kName));
    const std::optional<DType> dtype = dtype_of(from.dtype);
    if (!dtype)
      throw Failure(PERIGEE_UNSUPPORTED, fmt::format("{}: no dtype has code {}, {} bits and {} lanes", kName,
                                                     int(from.dtype.code), int(from.dtype.bits), from.dtype.lanes));
    void* data = from.data ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
    *out = give(wrap(kName, data, *dtype, from.ndim, from.shape, from.strides, release_managed, managed));
  });
}

perigee_status perigee_tensor_to_dlpack(perigee_tensor* tensor, DLManagedTensor** out) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_tensor_to_dlpack";
    need(tensor, kName, "tensor");
    need(out, kName, "out");
    const Type& type = tensor->value.type();
    const bool in_place = host_reads(type.device);
    void* data = in_place ? tensor->value.array().data() : const_cast<void*>(tensor->data());
    auto* exported = new Exported{{}, Ref<perigee_tensor>(tensor), type.shape, {}};
    exported->strides = in_place ? tensor->value.array().strides : contiguous_strides(type.shape);
    DLManagedTensor& managed = exported->managed;
    managed.dl_tensor = {
        data, {kDLCPU, 0}, type.shape.size(), code_of(type.dtype), exported->shape.begin(), exported->strides.begin(),
        0};
    managed.manager_ctx = exported;
    managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
    *out = &managed;
  });
}
