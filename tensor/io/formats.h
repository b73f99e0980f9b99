// Reads and writes tensors as files. Every malformed file throws an Error `load: FILE: at byte N: …`. Sizes in a file
// are checked against the size of the file before they are used.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/value.h"

namespace pg {

// The content of a safetensors file, in the order of its header.
struct NamedTensors {
  std::vector<std::pair<std::string, Value>> tensors;
  std::map<std::string, std::string> metadata;
};

// The arrays of a .params file of MXNet. A dict has a name for each, a list has no names.
struct Params {
  std::vector<Value> arrays;
  std::vector<std::string> names;
};

// Loaded tensors are contiguous and on the CPU. Npy and idx files may be gzipped. Integers that no dtype has are
// widened (see StoredInteger).
NamedTensors load_safetensors(const std::string& path);
NamedTensors read_safetensors(const std::string& name, std::string_view content);  // `name` is the FILE in messages
Value load_npy(const std::string& path);         // versions 1.0 to 3.0; arrays in Fortran order are transposed
NamedTensors load_npz(const std::string& path);  // the arrays of a zip archive, stored or deflated, without `.npy`
Value load_idx(const std::string& path);         // the format of MNIST

// Sparse arrays become dense; one without a shape has the shape {0}.
Params load_params(const std::string& path);
bool is_params(const std::string& path);  // whether the file starts as a .params file does

// Writes are atomic: on an exception the old file is unchanged. Values may be strided and on any device.
void save_safetensors(const std::string& path, const NamedTensors& content);
void save_npy(const std::string& path, const Value& value);

}  // namespace pg
