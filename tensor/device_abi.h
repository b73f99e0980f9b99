// The ABI between the core and a plugin as one number: a hash of the names, offsets and sizes of all fields of the
// shared structures. Every field must be listed; static_asserts reject a structure with a gap.
#pragma once
#include "tensor/device_table.h"
#include "tensor/op.h"

namespace pg::abi {

struct Field {
  const char* name;
  size_t at, size, align;
};

template <size_t N>
constexpr bool complete(const Field (&fields)[N], size_t size, size_t align) {
  size_t end = 0;
  for (const Field& f : fields) {
    if (f.at != (end + f.align - 1) / f.align * f.align) return false;
    end = f.at + f.size;
  }
  return (end + align - 1) / align * align == size;
}

constexpr uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3u; }

template <size_t N>
constexpr uint64_t mix(uint64_t hash, const Field (&fields)[N]) {
  for (const Field& f : fields) {
    for (const char* c = f.name; *c; ++c) hash = mix(hash, uint64_t(uint8_t(*c)));
    hash = mix(mix(hash, f.at), f.size);
  }
  return hash;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#define PG_FIELD(type, field) \
  Field { #field, offsetof(type, field), sizeof(type::field), alignof(decltype(type::field)) }
#define PG_COMPLETE(list, type) \
  static_assert(complete(list, sizeof(type), alignof(type)), "list every field of " #type " in order")

#define F(field) PG_FIELD(DeviceTable, field)
inline constexpr Field kTable[] = {F(abi),
                                   F(name),
                                   F(count),
                                   F(create_stream),
                                   F(destroy_stream),
                                   F(synchronize),
                                   F(create_event),
                                   F(destroy_event),
                                   F(record),
                                   F(follow),
                                   F(await),
                                   F(allocate),
                                   F(release),
                                   F(copy_in),
                                   F(copy_out),
                                   F(copy),
                                   F(clear),
                                   F(copy_between),
                                   F(allocate_pinned),
                                   F(release_pinned),
                                   F(kernels),
                                   F(kernel_for),
                                   F(supports),
                                   F(host_fallback),
                                   F(compile),
                                   F(strided_outputs),
                                   F(create_program),
                                   F(begin_capture),
                                   F(end_capture),
                                   F(launch),
                                   F(destroy_program),
                                   F(nest),
                                   F(next_step),
                                   F(read_row),
                                   F(write_row),
                                   F(title),
                                   F(memory),
                                   F(set_switch)};
PG_COMPLETE(kTable, DeviceTable);
#undef F
#define F(field) PG_FIELD(KernelRow, field)
inline constexpr Field kRow[] = {F(op), F(fn), F(flags), F(prepare), F(pays)};
PG_COMPLETE(kRow, KernelRow);
#undef F
#define F(field) PG_FIELD(View, field)
inline constexpr Field kView[] = {F(type), F(strides), F(data)};
PG_COMPLETE(kView, View);
#undef F
#define F(field) PG_FIELD(Type, field)
inline constexpr Field kType[] = {F(dtype), F(device), F(shape)};
PG_COMPLETE(kType, Type);
#undef F
#define F(field) PG_FIELD(AttrDef, field)
inline constexpr Field kAttr[] = {F(name), F(kind), F(fallback), F(doc),         F(optional),
                                  F(min),  F(max),  F(choices),  F(from_tensor), F(padding_names)};
PG_COMPLETE(kAttr, AttrDef);
#undef F
#define F(field) PG_FIELD(TileValue, field)
inline constexpr Field kTile[] = {F(kind),  F(dtype),    F(rounded), F(compute), F(count),
                                  F(index), F(operands), F(number),  F(op),      F(params)};
PG_COMPLETE(kTile, TileValue);
#undef F
#define F(field) PG_FIELD(TileBody, field)
inline constexpr Field kBody[] = {F(space), F(inputs), F(values), F(outputs), F(reductions)};
PG_COMPLETE(kBody, TileBody);
#undef F
// OpDef is listed in part: sizeof(OpDef) covers its other fields.
#define F(field) PG_FIELD(OpDef, field)
inline constexpr Field kOp[] = {F(name), F(inputs), F(attrs), F(outputs), F(traits), F(version), F(id), F(cpu_kernel)};
#undef F
#undef PG_COMPLETE
#undef PG_FIELD
#pragma GCC diagnostic pop

constexpr uint64_t of_layout() {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint64_t part : {mix(0, kTable), mix(0, kRow), mix(0, kView), mix(0, kType), mix(0, kAttr), mix(0, kTile),
                              mix(0, kBody), mix(0, kOp)})
    hash = mix(hash, part);
  for (const size_t size :
       {sizeof(KernelArgs), sizeof(AttrValue), sizeof(Attrs), sizeof(OpDef), sizeof(InputDef), sizeof(Dims),
        sizeof(TileInput), sizeof(TileOutput), sizeof(TileReduction), sizeof(PreparedKernel), sizeof(DeviceMemory),
        sizeof(LoopState), size_t(kDTypeCount), std::variant_size_v<AttrValue>})
    hash = mix(hash, size);
  return hash;
}

}  // namespace pg::abi

namespace pg {

inline constexpr uint64_t kDeviceAbi = abi::of_layout();

}  // namespace pg
