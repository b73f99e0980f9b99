// idx, the format of MNIST: two zero bytes, a dtype code, the number of dims, the dims, the elements; all big-endian.
#include <algorithm>

#include "tensor/context.h"
#include "tensor/io/file.h"
#include "tensor/io/formats.h"

namespace pg {
namespace {

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
  Value value = type.stored_size < size_of(type.dtype)
                    ? read_widened(file, {type.stored_size, true, true}, shape, "the elements")
                    : read_array(file, type.dtype, shape, "the elements");
  file.require_end();
  if (type.stored_size == size_of(type.dtype)) swap_bytes(value.array().data(), value.numel(), type.stored_size);
  return value;
}

}  // namespace pg
