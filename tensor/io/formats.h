// Reading and writing tensors as files. Every malformed file is an Error `load: FILE: at byte N: …`;
// nothing a file claims is believed before it was checked against the file's size.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor/value.h"

namespace pg {

// The content of a safetensors file, in the order of its header.
struct NamedTensors {
  std::vector<std::pair<std::string, Value>> tensors;
  std::map<std::string, std::string> metadata;
};

// All loaded tensors are contiguous and on the CPU. Npy and idx files may be gzipped.
NamedTensors load_safetensors(const std::string& path);
Value load_npy(const std::string& path);  // versions 1.0 to 3.0; arrays in Fortran order are transposed
Value load_idx(const std::string& path);  // the format of MNIST; 16-bit integers become int32

// Atomic: on an exception the old file is untouched. Values may be strided and on any device.
void save_safetensors(const std::string& path, const NamedTensors& content);
void save_npy(const std::string& path, const Value& value);

}  // namespace pg
