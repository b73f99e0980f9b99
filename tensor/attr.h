// Attributes of ops: typed values in the order of the op's AttrDefs. Dims are stored as the user writes them: they
// count from 1, negative ones from the end (see dim_index).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/random.h"
#include "tensor/shape.h"

namespace pg {

struct Graph;

enum class AttrKind : uint8_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kDType,
  kDevice,
  kInts,    // list of whole numbers; the binding accepts a single number for a list of one
  kFloats,  // list of numbers
  kDim,     // one dim in the user's convention
  kDims,    // list of dims in the user's convention; a single number is a list of one
  kRandom,  // hidden: the next tick of the generator, taken when the op is applied; scripts pass `generator`
  kGraph,   // a program that the op runs (kBodies); scripts cannot set it
};

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;

// monostate: absent (nil).
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::string, DType, Device, Ints, Floats,
                               RandomKey, Ref<Generator>, std::shared_ptr<const Graph>>;

struct AttrDef {
  const char* name;
  AttrKind kind;
  AttrValue fallback = {};  // monostate and !optional: the attribute is required
  const char* doc = "";
  bool optional = false;  // may be absent although it has no default
  double min = -1e300, max = 1e300;
  std::vector<const char*> choices = {};  // for kString
  // What else scripts may pass for a kInts:
  bool from_tensor = false;    // an integer tensor, whose values are read
  bool padding_names = false;  // "valid" for {0}, "same" for {kSamePadding}, which OpDef::complete replaces
};
inline constexpr int64_t kSamePadding = INT64_MIN;

// The attribute values of one application of an op. Copying is cheap when there are none.
class Attrs {
 public:
  Attrs() = default;
  explicit Attrs(size_t count) : values_(count) {}
  size_t size() const { return values_.size(); }
  const AttrValue& operator[](size_t i) const { return values_[i]; }
  AttrValue& operator[](size_t i) { return values_[i]; }
  bool operator==(const Attrs& other) const { return values_ == other.values_; }

 private:
  std::vector<AttrValue> values_;
};

// Attributes by name, as a file holds them: absent where the writer left out a default.
using NamedAttrs = std::map<std::string, AttrValue>;

// Converts a user dim (1-based or negative) into a 0-based index into `rank` dims. Throws `op: bad argument 'name'
// (expected a dim from 1 to R or -R to -1, got D)`.
int dim_index(const char* op, const char* name, int64_t dim, int rank);

std::string to_string(const AttrValue& value);

}  // namespace pg
