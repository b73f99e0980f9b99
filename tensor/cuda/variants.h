// The declarations that families of kernels depend on: one module for each text.
#pragma once
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace pg::cuda {

// An activation of y + bias. `activation`: of conv_act, or empty.
std::string epilogue_types(DType y, DType bias, const std::string& activation);
std::string pool_types(DType t, int64_t elements);           // elements: of the largest array
std::string sample_types(DType t, const std::string& kind);  // kind: of resample
std::string join_types(int64_t bytes);                       // of an element
std::string label_types(DType t, DType label);
std::string sequence_types(DType t, DType length);
std::string pad_types(DType t, const std::string& mode);              // mode: of pad
std::string point_types(DType t, const char* outside, bool corners);  // outside: kZero, kBorder or kReflect

struct AttentionTypes {
  DType t;
  std::optional<DType> mask;  // bool, t, or float32 for halves
  bool drops = false;
  int64_t width, value_width;  // of queries and values
};
std::string attention_types(const AttentionTypes& types);
std::string attention_halves_types(const AttentionTypes& types);
std::string scan_types(DType from, DType to, const char* op);  // op: kSum, kProd, kMax, kMin or kAffine
std::string mask_types(DType t, DType rank);
std::string sort_types(DType t, const char* form);  // form: kPacked, kWide or kSlices
std::string unique_types(DType t, DType rank);
std::string search_types(DType sequence, DType value);
std::string count_types(DType label);
std::string index_types(DType element, DType index);
std::string scatter_types(DType element, DType index, DType number);
std::string bag_types(DType t, DType index);
std::string distance_types(DType t, const char* order);  // order: kZero, kOne, kTwo, kInfinite or kAny
std::string random_types(DType t);
std::string ctc_types(DType t, int directions);

struct NormTypes {
  DType x;
  DType dy = DType::kFloat32, out = DType::kFloat32, mean = DType::kFloat32, var = DType::kFloat32;
  bool wide = false;  // whether 32 bits do not count the elements
};
std::string norm_types(const NormTypes& types);

}  // namespace pg::cuda
