#include "tensor/cpu/copy.h"

#include <cstring>

namespace pg::cpu {

void copy_strided(const View& from, void* to) {
  const int64_t n = from.numel(), size = size_of(from.dtype());
  Dims index(from.rank(), 0);
  char* out = static_cast<char*>(to);
  for (int64_t i = 0; i < n; ++i, out += size) {
    int64_t offset = 0;
    for (int d = 0; d < from.rank(); ++d) offset += index[d] * (*from.strides)[d];
    std::memcpy(out, static_cast<const char*>(from.data) + offset * size, size_t(size));
    for (int d = from.rank() - 1; d >= 0 && ++index[d] == from.size(d); --d) index[d] = 0;
  }
}

}  // namespace pg::cpu
