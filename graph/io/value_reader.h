// ValueReader: reads the small parts of a model file: dtypes, devices, types, and the attributes of ops.
#pragma once
#include <limits>
#include <memory>
#include <optional>

#include "tensor/io/json.h"
#include "tensor/op.h"

namespace pg {

inline constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxDim = kMaxElements;

template <size_t N>
std::optional<int> index_in(const char* const (&names)[N], const std::string& text) {
  for (size_t k = 0; k < N; ++k)
    if (text == names[k]) return int(k);
  return std::nullopt;
}

class ValueReader : public JsonReader {
 protected:
  using JsonReader::JsonReader;

  void require(size_t at, const char* field);  // goes to the field's value, which must be there

  DType read_dtype();
  Device read_device();
  Type read_type();

  // Returns the attributes at place `at`, or the defaults if that is kAbsent. Those of an older version of the op are
  // upgraded; `op_at` is the place for errors of that.
  Attrs read_attrs(const OpDef& op, int64_t version, size_t at, size_t op_at);

  // Returns graph `g` of the file as the body of the node that is being read, or fails at place `at`.
  virtual std::shared_ptr<const Graph> take_body(int64_t g, size_t at) = 0;
  std::shared_ptr<const Graph> read_body();

 private:
  Attrs read_old_attrs(const OpDef& op, int64_t version, size_t at, size_t op_at);
  AttrValue read_attr(const AttrDef& def);
  AttrValue read_any();
  AttrValue fitted(const AttrDef& def, AttrValue value, size_t at);
  int64_t read_int() { return integer(-kMaxElements, kMaxElements); }
  RandomKey read_key();
};

}  // namespace pg
