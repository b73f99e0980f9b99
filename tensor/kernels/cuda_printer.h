// Prints the kernel of a body. Private to cuda_source.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tensor/kernels/cuda_source.h"

namespace pg {

// The number of parameters of an op.
size_t cuda_param_count(const TileValue& value);

// `form` is that of the call; the words are in the order of the constructor of CudaCall.
class CudaPrinter {
 public:
  CudaPrinter(const CudaBody& body, std::string_view form, size_t words);
  std::string kernel(const std::string& name) const;
  std::string element() const;

 private:
  const TileBody& tiles() const { return body_.tiles; }
  bool spread(size_t operand) const { return form_[operand] == 'g'; }
  bool grouped(size_t operand) const { return width_ > 1 && form_[operand] == 'f'; }
  std::string lines() const;
  std::string coordinates() const;
  std::string position(size_t operand) const;
  std::string group_loads() const;
  std::string group_stores() const;
  std::string line(size_t v) const;
  std::string computed(size_t v) const;
  std::string application(size_t v) const;
  std::string output(size_t k) const;

  const CudaBody& body_;
  const std::string_view form_;
  const size_t operands_, words_;
  int rank_, width_;
  size_t sizes_;                 // the word of the first size
  std::vector<size_t> strides_;  // of each operand, the word of its first stride
  std::vector<size_t> number_;   // of each value, the word of its first number
};

}  // namespace pg
