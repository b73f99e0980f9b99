// Value: the operand and result of `apply`. It is an immutable strided array or a number, with its place on the
// gradient tape. A script's tensor is a box that holds one Value.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/memory_account.h"
#include "tensor/refcount.h"
#include "tensor/shape.h"

namespace pg {

class TapeNode;

// The reference-counted part of a TapeNode, so that values can hold nodes before TapeNode is defined.
struct TapeLink : RefCounted<TapeLink> {
  static void destroy(TapeLink* link);  // iterative, because tapes may be 10^5 nodes deep
};

struct Type {
  DType dtype = DType::kFloat32;
  Device device = {};
  Dims shape = {};
  bool operator==(const Type&) const = default;
};
std::string to_string(const Type& type);  // "float32 2x3 cpu"
// The bytes of all elements.
inline Bytes bytes_of(const Type& type) { return Bytes::of(numel(type.shape), uint64_t(size_of(type.dtype))); }

// The output of a graph node that an array represents while a program is being traced; see graph/ir/builder.h.
struct Symbol {
  uint64_t builder = 0;  // 0: none
  int32_t node = -1;
  int32_t output = 0;
};

// An array: type, strides in elements, and a buffer. Without a buffer it is only a type (see OpDef::vjp_uses) or a
// symbol.
class Array : public RefCounted<Array> {
 public:
  Type type;
  Dims strides;
  int64_t offset = 0;  // in elements, from the start of the buffer
  Ref<Buffer> buffer;
  bool contiguous = true;  // row-major without gaps
  Symbol symbol;
  Counted<288> counted;

  static Ref<Array> make(const Type& type);  // contiguous, without a buffer
  static void destroy(Array* array);

  void* data() const {
    if (!buffer) no_data();
    return static_cast<char*>(buffer->data) + offset * size_of(type.dtype);
  }
  // Whether a write would be visible nowhere else. The caller writes then: see Buffer::claim.
  bool writable() const { return unique() && buffer && buffer->claim(); }

 private:
  [[noreturn]] static void no_data();
};

class Value {
 public:
  Value() = default;
  explicit Value(Ref<Array> array) : array_(std::move(array)) {}
  explicit Value(double number) : number_(number), is_number_(true) {}

  bool defined() const { return array_ || is_number_; }
  bool is_number() const { return is_number_; }
  bool is_array() const { return bool(array_); }
  double number() const { return number_; }

  Array& array() const { return *array_; }
  const Ref<Array>& array_ref() const { return array_; }
  Ref<Array>& array_ref() { return array_; }
  const Type& type() const { return array_->type; }
  const Dims& shape() const { return array_->type.shape; }
  DType dtype() const { return array_->type.dtype; }
  Device device() const { return array_->type.device; }
  int rank() const { return shape().size(); }
  int64_t numel() const { return pg::numel(shape()); }

  // The tape node that made this value (or the leaf that it is), and which output of the node it is.
  TapeNode* node() const;  // inline in tape.h
  bool has_node() const { return bool(node_); }
  uint32_t node_output() const { return node_output_; }
  void link(TapeNode* node, uint32_t output);  // inline in tape.h; nullptr unlinks
  Value detached() const { return is_number_ ? Value(number_) : Value(array_); }

 private:
  Ref<Array> array_;
  Ref<TapeLink> node_;
  double number_ = 0;
  uint32_t node_output_ = 0;
  bool is_number_ = false;
};

}  // namespace pg
