// Ops that take parts of a tensor, and their inverses.
#include <algorithm>
#include <numeric>

#include "tensor/ops/all.h"
#include "tensor/ops/index.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// A rectangular region: on dim d, the `length[d]` elements start[d], start[d] + step[d], … (0-based). Dims flagged in
// `drop` have length 1 and are removed from the part.
struct Region {
  Dims start, length, step, drop;
  explicit Region(const Dims& whole)
      : start(whole.size(), 0), length(whole), step(whole.size(), 1), drop(whole.size(), 0) {}
  explicit Region(const AttrReader& c)
      : start(list(c, "start")), length(list(c, "length")), step(list(c, "step")), drop(list(c, "drop")) {}

  static Dims list(const AttrReader& c, const char* name) { return Dims{std::span<const int64_t>(c.attr<Ints>(name))}; }
  Dims shape() const {
    Dims out;
    for (int d = 0; d < length.size(); ++d)
      if (!drop[d]) out.push_back(length[d]);
    return out;
  }
  bool fits(const Dims& whole) const {
    const int rank = whole.size();
    if (start.size() != rank || length.size() != rank || step.size() != rank || drop.size() != rank) return false;
    for (int d = 0; d < rank; ++d) {
      if (start[d] < 0 || length[d] < 0 || step[d] < 1 || (drop[d] && length[d] != 1)) return false;
      if (length[d] == 0 ? start[d] > whole[d]
                         : whole[d] < 1 || (whole[d] - 1 - start[d]) / step[d] < length[d] - 1 || start[d] >= whole[d])
        return false;
    }
    return true;
  }
};

bool view_region(ViewArgs& c, const Region& region) {
  for (int d = 0; d < region.length.size(); ++d) {
    c.offset += region.start[d] * c.input.strides[d];
    if (!region.drop[d])
      c.strides.push_back(region.length[d] > 1 ? c.input.strides[d] * region.step[d] : c.input.strides[d]);
  }
  return true;
}

// The region from the attributes of slice. A negative start counts from the end; a length of -1 extends to the end.
Region given_region(const AttrReader& c, const Dims& whole) {
  Region region(c);
  for (int d = 0; d < std::min({whole.size(), region.start.size(), region.length.size(), region.step.size()}); ++d) {
    if (region.start[d] < 0) region.start[d] += whole[d];
    if (region.length[d] == -1 && region.step[d] > 0)
      region.length[d] = std::max<int64_t>(0, whole[d] - region.start[d] + region.step[d] - 1) / region.step[d];
  }
  return region;
}

Region checked_region(const Infer& c, const Dims& whole) {
  Region region = given_region(c, whole);
  if (!region.fits(whole)) c.bad_attr("start", "a region inside " + to_string(whole));
  return region;
}

// Zeros of the shape of the input, with dy in the region.
Var place(const Vjp& c, const Var& dy, const Region& region) {
  return call<"slice_backward">(dy, {{"shape", ints(c.input(0).shape())},
                                     {"start", ints(region.start)},
                                     {"length", ints(region.length)},
                                     {"step", ints(region.step)},
                                     {"drop", ints(region.drop)}});
}

// Converts a user position (1-based or negative) to a 0-based one. `past_end` also accepts the position after the last.
int64_t position(const AttrReader& c, const char* name, int64_t size, bool past_end) {
  const int64_t given = c.attr<int64_t>(name);
  const int64_t at = given > 0 ? given - 1 : given + size;
  if (given != 0 && at >= 0 && at < size + past_end) return at;
  bad_argument(c.op().name, name, fmt::format("a position from 1 to {} or -{} to -1", size + past_end, size),
               std::to_string(given));
}

int cut_dim(const AttrReader& c, int rank) {
  if (rank == 0) bad_argument(c.op().name, "x", "a tensor of at least 1 dim", "a 0-dim one");
  return c.dim("dim", rank);
}

Region narrow_region(const AttrReader& c, const Dims& x) {
  const int d = cut_dim(c, x.size());
  Region region(x);
  region.start[d] = position(c, "start", x[d], true);
  region.length[d] = c.attr<int64_t>("length");
  if (region.length[d] > x[d] - region.start[d])
    bad_argument(c.op().name, "length",
                 fmt::format("at most {} from start {} of {}", x[d] - region.start[d], c.attr<int64_t>("start"), x[d]),
                 std::to_string(region.length[d]));
  return region;
}

Region select_region(const AttrReader& c, const Dims& x) {
  const int d = cut_dim(c, x.size());
  Region region(x);
  region.start[d] = position(c, "index", x[d], false);
  region.length[d] = region.drop[d] = 1;
  return region;
}

using RegionFn = Region (*)(const AttrReader&, const Dims&);
template <RegionFn region_of>
void infer_region(Infer& c) {
  c.output(c.dtype(0), region_of(c, c.shape(0)).shape());
}
template <RegionFn region_of>
bool view_of_region(ViewArgs& c) {
  return view_region(c, region_of(c, c.input.type.shape));
}
template <RegionFn region_of>
Var grad_region(Vjp& c) {
  return place(c, c.dy(), region_of(c, c.input(0).shape()));
}
const AttrDef kDim = {"dim", AttrKind::kDim, int64_t(1), "the dim to cut along"};
const AttrDef kStart = {
    "start", AttrKind::kInts, {}, "first position in each dim, counted from 0; negative from the end"};
const AttrDef kLength = {"length", AttrKind::kInts, {}, "number of positions in each dim; -1 to the end"};
const AttrDef kStep = {"step", AttrKind::kInts, {}, "distance of positions in each dim"};
const AttrDef kDrop = {"drop", AttrKind::kInts, {}, "1 for a dim of length 1 that the piece does not keep, else 0"};

constexpr int64_t kMaxPieces = 1 << 20;  // a long dim without elements could be cut into any number of parts

// The sizes of the pieces of split, chunk and unbind along dim d.
std::vector<int64_t> split_sizes(const AttrReader& c, int64_t n) {
  const Ints& sizes = c.attr<Ints>("split_size");
  auto bad = [&](const std::string& expected) {
    bad_argument(c.op().name, "split_size", expected, to_string(c.raw("split_size")));
  };
  int64_t sum = 0;
  for (int64_t s : sizes) {
    if (s < 0) bad("sizes that are not negative");
    if (sizes.size() != 1 && s > n - sum) bad(fmt::format("sizes that sum to {}", n));
    sum += s;
  }
  if (sizes.size() != 1) {
    if (sum != n) bad(fmt::format("sizes that sum to {}", n));
    return sizes;
  }
  if (sizes[0] == 0 && n > 0) bad("a positive size");
  if (n > 0 && (n - 1) / sizes[0] >= kMaxPieces) bad(fmt::format("a size that makes at most {} pieces", kMaxPieces));
  std::vector<int64_t> out;
  for (int64_t at = 0; at < n || out.empty(); at += sizes[0]) out.push_back(std::min(sizes[0], n - at));
  return out;
}

std::vector<int64_t> chunk_sizes(const AttrReader& c, int64_t n) {
  const int64_t chunks = c.attr<int64_t>("chunks");
  if (n == 0) return std::vector<int64_t>(size_t(chunks), 0);
  const int64_t size = (n + chunks - 1) / chunks;
  std::vector<int64_t> out;
  for (int64_t at = 0; at < n; at += size) out.push_back(std::min(size, n - at));
  return out;
}

using SizesFn = std::vector<int64_t> (*)(const AttrReader&, int64_t);
template <SizesFn sizes_of>
void infer_pieces(Infer& c) {
  const int d = cut_dim(c, c.rank(0));
  Dims shape = c.shape(0);
  for (int64_t size : sizes_of(c, c.shape(0)[d])) {
    shape[d] = size;
    c.output(c.dtype(0), shape);
  }
}
// Returns the start of piece i of a dim of size n, without building the list of sizes for every piece.
int64_t split_start(const AttrReader& c, int64_t, int i) {
  const Ints& sizes = c.attr<Ints>("split_size");
  return sizes.size() == 1 ? i * sizes[0] : std::accumulate(sizes.begin(), sizes.begin() + i, int64_t(0));
}
int64_t chunk_start(const AttrReader& c, int64_t n, int i) {
  const int64_t chunks = c.attr<int64_t>("chunks");
  return i * ((n + chunks - 1) / chunks);
}
using StartFn = int64_t (*)(const AttrReader&, int64_t, int);
template <StartFn start_of>
bool view_piece(ViewArgs& c) {
  const int d = cut_dim(c, c.out_shape.size());
  c.strides = c.input.strides;
  c.offset = start_of(c, c.input.type.shape[d], c.output) * c.strides[d];
  return true;
}
template <SizesFn sizes_of>
void grad_pieces(Vjp& c) {
  const int d = cut_dim(c, c.input(0).rank());
  std::vector<Var> dy;
  for (size_t i = 0; i < sizes_of(c, c.input(0).shape()[d]).size(); ++i) dy.push_back(c.dy(i));
  c.set(0, call_list<"cat">(dy, {{"dim", user_dim(d)}}));
}

void infer_unbind(Infer& c) {
  const int d = cut_dim(c, c.rank(0));
  Dims shape = c.shape(0);
  if (shape[d] > kMaxPieces) c.bad_input(0, fmt::format("at most {} slices", kMaxPieces));
  shape.erase(d);
  for (int64_t i = 0; i < c.shape(0)[d]; ++i) c.output(c.dtype(0), shape);
}
bool view_unbind(ViewArgs& c) {
  const int d = cut_dim(c, c.input.type.shape.size());
  c.strides = c.input.strides;
  c.offset = c.output * c.strides[d];
  c.strides.erase(d);
  return true;
}
void grad_unbind(Vjp& c) {
  const int d = cut_dim(c, c.input(0).rank());
  std::vector<Var> dy;
  for (int64_t i = 0; i < c.input(0).shape()[d]; ++i) dy.push_back(c.dy(size_t(i)));
  c.set(0, call_list<"stack">(dy, {{"dim", user_dim(d)}}));
}

std::vector<OpDef> cut_rows() {
  return {
      {.name = "narrow",
       .doc = "The `length` positions of dim `dim` from `start` on (1-based, negative from the end). A view.",
       .example = "return pg.range(1, 5):narrow(1, 2, 3)",
       .inputs = {{"x"}},
       .attrs = {{"dim", AttrKind::kDim, {}, "the dim to cut along"},
                 {"start", AttrKind::kInt, {}, "first position kept"},
                 {"length", AttrKind::kInt, {}, "number of positions kept", false, 0}},
       .infer = infer_region<narrow_region>,
       .view = view_of_region<narrow_region>,
       .vjp = {grad_region<narrow_region>},
       .vjp_uses = "",
       .traits = kView | kRowwise | kIndexing},
      {.name = "select",
       .doc = "Position `index` of dim `dim` (1-based, negative from the end), without that dim. A view.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):select(2, -1)",
       .inputs = {{"x"}},
       .attrs = {{"dim", AttrKind::kDim, {}, "the dim to select on"}, {"index", AttrKind::kInt, {}, "the position"}},
       .infer = infer_region<select_region>,
       .view = view_of_region<select_region>,
       .vjp = {grad_region<select_region>},
       .vjp_uses = "",
       .traits = kView | kRowwise | kIndexing},
      {.name = "slice",
       .doc = "A rectangular region of x, as in x[{…}]. Each list has one entry per dim. A view.",
       .inputs = {{"x"}},
       .attrs = {kStart, kLength, kStep, kDrop},
       .infer = [](Infer& c) { c.output(c.dtype(0), checked_region(c, c.shape(0)).shape()); },
       .view = view_of_region<given_region>,
       .vjp = {grad_region<given_region>},
       .vjp_uses = "",
       .traits = kView | kHidden | kIndexing},
      {.name = "slice_backward",
       .doc = "Zeros of `shape` except for the region, which is dy: the derivative of slice.",
       .inputs = {{"dy"}},
       .attrs = {{"shape", AttrKind::kInts, {}, "sizes of the result"}, kStart, kLength, kStep, kDrop},
       .infer =
           [](Infer& c) {
             const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
             if (!(checked_region(c, shape).shape() == c.shape(0))) c.bad_input(0, "the shape of the region");
             c.output(c.dtype(0), shape);
           },
       .vjp = {[](Vjp& c) { return call_like<"slice">(c, {c.dy()}); }},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "slice_assign",
       .doc = "x with a rectangular region replaced by `value`, a number or a tensor that broadcasts to it, as in "
              "x[{…}] = value. The result has the dtype of x.",
       .inputs = {{"x"}, {"value"}},
       .attrs = {kStart, kLength, kStep, kDrop},
       .infer =
           [](Infer& c) {
             check_written(c, 1, checked_region(c, c.shape(0)).shape());
             c.output(c.dtype(0), c.shape(0));
           },
       .vjp = {[](Vjp& c) {
                 return call_like<"slice_assign">(c, {c.dy(), Var(0.0)});
               },
               [](Vjp& c) { return call_like<"slice">(c, {c.dy()}); }},
       .vjp_uses = "",
       .traits = kHidden | kInPlace | kWeakNumber | kIndexing},
  };
}

std::vector<OpDef> piece_rows() {
  return {
      {.name = "split",
       .doc = "Cuts x along `dim` into pieces of split_size (the last may be smaller), or into pieces of the listed "
              "sizes, which sum to the size of the dim. An array table of views.",
       .example = "return pg.range(1, 5):split(2)",
       .inputs = {{"x"}},
       .attrs = {{"split_size", AttrKind::kInts, {}, "size of each piece, or a list of sizes"}, kDim},
       .outputs = {"pieces"},
       .infer = infer_pieces<split_sizes>,
       .view = view_piece<split_start>,
       .vjp_all = grad_pieces<split_sizes>,
       .vjp_uses = "",
       .traits = kView | kListOutput},
      {.name = "chunk",
       .doc = "Cuts x along `dim` into at most `chunks` pieces of equal size; the last may be smaller. An array table "
              "of views.",
       .example = "return pg.range(1, 5):chunk(2)",
       .inputs = {{"x"}},
       .attrs = {{"chunks", AttrKind::kInt, {}, "number of pieces", false, 1, 1e6}, kDim},
       .outputs = {"pieces"},
       .infer = infer_pieces<chunk_sizes>,
       .view = view_piece<chunk_start>,
       .vjp_all = grad_pieces<chunk_sizes>,
       .vjp_uses = "",
       .traits = kView | kListOutput},
      {.name = "unbind",
       .doc = "The positions of dim `dim`, each without that dim. An array table of views.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):unbind()",
       .inputs = {{"x"}},
       .attrs = {kDim},
       .outputs = {"pieces"},
       .infer = infer_unbind,
       .view = view_unbind,
       .vjp_all = grad_unbind,
       .vjp_uses = "",
       .traits = kView | kListOutput | kIndexing},
  };
}

}  // namespace

void add_slice_ops(Registry& r) {
  r.add(cut_rows());
  r.add(piece_rows());
}

}  // namespace pg
