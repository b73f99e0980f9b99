// idx, the format of MNIST: two zero bytes, a dtype code, the number of dims, the dims, the elements; all big-endian.
#include <algorithm>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg {
namespace {

// Tensors have no 16-bit integers, so these are widened.
struct IdxType {
  int code;
  DType dtype;
  int stored_size;
};
constexpr IdxType kTypes[] = {{0x08, DType::kUInt8, 1}, {0x09, DType::kInt8, 1},    {0x0b, DType::kInt32, 2},
                              {0x0c, DType::kInt32, 4}, {0x0d, DType::kFloat32, 4}, {0x0e, DType::kFloat64, 8}};

const IdxType& type_of(const FileSource& file, int code) {
  for (const IdxType& t : kTypes)
    if (t.code == code) return t;
  file.fail_at(2, "unknown idx dtype code 0x{:02x}", code);
}

Value read_shorts(FileSource& file, const Dims& shape) {
  Value value = make_array(Type{DType::kInt32, {}, shape});
  auto* out = static_cast<int32_t*>(value.array().data());
  constexpr int64_t kChunk = 4096;
  uint16_t raw[kChunk];
  for (int64_t i = 0, n = value.numel(); i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    file.read(raw, size_t(count) * 2, "the elements");
    for (int64_t k = 0; k < count; ++k) out[i + k] = int16_t(uint16_t(raw[k] >> 8 | raw[k] << 8));
  }
  return value;
}

}  // namespace

Value load_idx(const std::string& path) {
  FileSource file(path);
  unsigned char magic[4];
  file.read(magic, sizeof magic, "the magic number");
  if (magic[0] != 0 || magic[1] != 0) file.fail_at(0, "not an idx file (it starts with two zero bytes)");
  const IdxType& type = type_of(file, magic[2]);
  const int rank = magic[3];
  if (rank < 1 || rank > kMaxRank) file.fail_at(3, "{} dims (from 1 to {} expected)", rank, kMaxRank);
  Dims shape;
  for (int i = 0; i < rank; ++i) {
    unsigned char d[4];
    file.read(d, sizeof d, "the dims");
    shape.push_back(int64_t(d[0]) << 24 | int64_t(d[1]) << 16 | int64_t(d[2]) << 8 | int64_t(d[3]));
  }
  file.check_payload(payload_bytes(file, 4, shape, uint64_t(type.stored_size)));
  Value value = type.stored_size < size_of(type.dtype) ? read_shorts(file, shape)
                                                       : read_array(file, type.dtype, shape, "the elements");
  file.require_end();
  if (type.stored_size == size_of(type.dtype)) swap_bytes(value.array().data(), value.numel(), type.stored_size);
  return value;
}

}  // namespace pg
