// Reads attributes. Plugins link this file too, so it must not use other files of the core.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/tile.h"

namespace pg {

int dim_index(const char* op, const char* name, int64_t dim, int rank) {
  const int64_t index = dim > 0 ? dim - 1 : dim + rank;
  if (dim != 0 && index >= 0 && index < rank) return int(index);
  if (rank == 0 && (dim == 1 || dim == -1)) return 0;
  bad_argument(op, name, fmt::format("a dim from 1 to {} or -{} to -1", rank, rank),
               std::to_string(dim) + (dim == 0 ? "; dims count from 1" : ""));
}

const AttrValue& AttrReader::raw(const char* name) const {
  const int i = op_.attr_index(name);
  if (i < 0) throw Error(fmt::format("{}: no attribute '{}'", op_.name, name));
  return attrs_[size_t(i)];
}

int AttrReader::dim(const char* name, int rank) const { return dim_index(op_.name, name, attr<int64_t>(name), rank); }

Dims AttrReader::dims(const char* name, int rank) const {
  const AttrValue& value = raw(name);
  Dims out;
  if (value.index() == 0 || std::get<Ints>(value).empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  for (int64_t d : std::get<Ints>(value)) {
    const int index = dim_index(op_.name, name, d, rank);
    if (std::find(out.begin(), out.end(), index) != out.end())
      bad_argument(op_.name, name, "each dim once", fmt::format("{{{}}}", fmt::join(std::get<Ints>(value), ", ")));
    out.push_back(index);
  }
  return out;
}

int OpDef::attr_index(const char* attr) const {
  for (size_t i = 0; i < attrs.size(); ++i)
    if (attrs[i].name == attr || !std::strcmp(attrs[i].name, attr)) return int(i);
  return -1;
}

void tile_params(const OpDef& op, const Attrs& attrs, double* params) {
  for (size_t i = 0; i < std::min(attrs.size(), size_t(kMaxTileParams)); ++i) {
    const AttrValue& v = attrs[i];
    params[i] = v.index() == 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
    if (const auto* number = std::get_if<double>(&v)) params[i] = *number;
    if (const auto* whole = std::get_if<int64_t>(&v)) params[i] = double(*whole);
    if (const auto* flag = std::get_if<bool>(&v)) params[i] = *flag;
    if (const auto* text = std::get_if<std::string>(&v)) {
      const auto& choices = op.attrs[i].choices;
      params[i] = double(std::find(choices.begin(), choices.end(), *text) - choices.begin());
    }
  }
}

}  // namespace pg
