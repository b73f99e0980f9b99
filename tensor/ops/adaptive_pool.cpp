// Pooling over a given number of windows.
#include "tensor/ops/index.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/pool_rules.h"

namespace pg {
namespace {

// A single size applies to every spatial dim of images or volumes.
Ints adaptive_size(const Ints& size, int rank) {
  return size.size() == 1 && (rank == 4 || rank == 5) ? Ints(size_t(rank - 2), size[0]) : size;
}

void infer_adaptive(Infer& c) {
  const Ints size = adaptive_size(c.attr<Ints>("size"), c.rank(0));
  require_planes(c, int(size.size()));
  for (int64_t n : size)
    if (n < 1 || n > 65536) c.bad_attr("size", "sizes from 1 to 65536");
  for (int64_t n : tail(c.shape(0), int(size.size())))
    if (n < 1) c.bad_input(0, "at least 1 element in every spatial dim");
  c.output(c.dtype(0), with_tail(c.shape(0), size));
}

// Window o of `out` windows over `in` elements starts here, as in PyTorch. Windows overlap when `in` is not a multiple
// of `out`.
int64_t window_first(int64_t o, int64_t in, int64_t out) { return o * in / out; }
int64_t window_last(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

// Reduces dim d (0-based, of `dims` spatial dims) window by window. `reduce` gets the elements of a window and must
// keep the dim, with size 1.
template <class F>
Var by_windows(const Var& x, int d, int64_t out, F reduce) {
  std::vector<Var> pieces;
  const int64_t in = x.shape()[d];
  for (int64_t o = 0; o < out; ++o) {
    const int64_t first = window_first(o, in, out), last = window_last(o, in, out);
    pieces.push_back(reduce(call<"narrow">(x, {{"dim", user_dim(d)}, {"start", first + 1}, {"length", last - first}})));
  }
  return call_list<"cat">(pieces, {{"dim", user_dim(d)}});
}

std::vector<Var> decompose_adaptive_avg(Rule& c) {
  const Ints size = adaptive_size(c.attr<Ints>("size"), c.in(0).rank());
  const int dims = int(size.size());
  Var x = c.in(0);
  Dims split = x.shape();
  Ints means;
  for (int d = 0; d < dims; ++d) {
    const int at = x.rank() - dims + d;
    if (x.shape()[at] % size[size_t(d)] == 0) continue;
    x = by_windows(x, at, size[size_t(d)], [&](const Var& piece) {
      return call<"mean">(piece, {{"dim", Ints{user_dim(at)}}, {"keepdim", true}});
    });
  }
  split = Dims();
  for (int i = 0; i < x.rank(); ++i) {
    const int d = i - (x.rank() - dims);
    split.push_back(d < 0 ? x.shape()[i] : size[size_t(d)]);
    if (d < 0 || x.shape()[i] == size[size_t(d)]) continue;
    split.push_back(x.shape()[i] / size[size_t(d)]);
    means.push_back(split.size());
  }
  if (means.empty()) return {x};
  return {call<"mean">(with_shape(x, split), {{"dim", means}})};
}

void infer_adaptive_max(Infer& c) {
  infer_adaptive(c);
  if (c.attr<bool>("return_indices")) c.output(DType::kInt64, c.outputs[0].shape);
}

// The positions `index` in planes of `places`, whose last `dims` dims are spatial.
Var places_at(const Var& places, const Var& index, int dims) {
  const auto flat = [dims](const Var& v) {
    Dims shape;
    int64_t n = 1;
    for (int d = 0; d < v.rank(); ++d)
      if (d < v.rank() - dims)
        shape.push_back(v.shape()[d]);
      else
        n *= v.shape()[d];
    shape.push_back(n);
    return with_shape(v, shape);
  };
  const Var taken = call<"gather">(flat(places), flat(index), {{"dim", int64_t(-1)}, {"index_base", int64_t(0)}});
  return with_shape(taken, index.shape());
}

// Max pooling of only dim `at` (0-based, one of the last `dims`). `before` is x, or the result for the dims after it.
MaxPool pool_dim(const MaxPool& before, int at, int64_t out, int dims) {
  const Var x = before.out;
  const int64_t in = x.shape()[at];
  std::vector<Var> values, places;
  const auto window = [&](int64_t first, int64_t length, int64_t size) {
    const AttrList range = {{"dim", user_dim(at)}, {"start", first + 1}, {"length", length}};
    Ints kernel(size_t(dims), 1);
    kernel[size_t(at - (x.rank() - dims))] = size;
    const MaxPool pool = max_pool_of(call<"narrow">(x, range), kernel, std::monostate(), Ints{0}, Ints{1}, false);
    values.push_back(pool.out);
    if (before.index.defined()) places.push_back(places_at(call<"narrow">(before.index, range), pool.index, dims));
  };
  if (in % out == 0) {
    window(0, in, in / out);
  } else {
    for (int64_t o = 0; o < out; ++o) {
      const int64_t first = window_first(o, in, out), length = window_last(o, in, out) - first;
      window(first, length, length);
    }
  }
  const AttrList along = {{"dim", user_dim(at)}};
  return {call_list<"cat">(values, along), places.empty() ? Var() : call_list<"cat">(places, along)};
}

// The position of each element of x in its plane, counted from 0; broadcast over the planes.
Var own_places(const Rule& c, const Var& x, int dims) {
  Dims plane;
  int64_t n = 1;
  for (int d = x.rank() - dims; d < x.rank(); ++d) plane.push_back(x.shape()[d]), n *= x.shape()[d];
  Value list = make_array(Type{DType::kInt64, {}, plane});
  for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(list.array().data())[i] = i;
  const Var places = c.wrap(to_device(c.context(), list, x.value().device()));
  return call<"contiguous">(call<"expand">(places, {{"shape", ints(x.shape())}}));
}

// One dim after the other, from the last on, so that the first of equal elements wins. With whole windows in all dims
// this is plain max pooling.
std::vector<Var> decompose_adaptive_max(Rule& c) {
  const Var x = c.in(0);
  const Ints size = adaptive_size(c.attr<Ints>("size"), x.rank());
  const int dims = int(size.size());
  Ints kernel;
  for (int d = 0; d < dims; ++d) {
    const int64_t in = x.shape()[x.rank() - dims + d];
    if (in % size[size_t(d)] == 0) kernel.push_back(in / size[size_t(d)]);
  }
  if (int(kernel.size()) == dims) return pooled(c, max_pool_of(x, kernel, std::monostate(), Ints{0}, Ints{1}, false));
  MaxPool pool = {x, c.attr<bool>("return_indices") ? own_places(c, x, dims) : Var()};
  for (int d = dims - 1; d >= 0; --d) {
    const int at = x.rank() - dims + d;
    if (pool.out.shape()[at] != size[size_t(d)]) pool = pool_dim(pool, at, size[size_t(d)], dims);
  }
  return pooled(c, pool);
}

}  // namespace

void add_adaptive_pool_ops(Registry& r) {
  const OpDef rows[] = {
      {.name = "adaptive_avg_pool",
       .doc = "Means over as many windows per spatial dim as given by `size`, whatever the size of x. The length of "
              "`size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more.",
       .example = "return pg.adaptive_avg_pool(pg.ones(1, 2, 7, 7), {3, 3})",
       .inputs = {{"x", kFloating}},
       .attrs = {kSize},
       .infer = infer_adaptive,
       .decompose = decompose_adaptive_avg,
       .traits = kWidens},
      {.name = "adaptive_max_pool",
       .doc = "Maxima over as many windows per spatial dim as given by `size`, whatever the size of x. The length of "
              "`size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more. "
              "With return_indices also the positions of the maxima, as max_pool2d gives them.",
       .example = "return pg.adaptive_max_pool(pg.ones(1, 2, 7, 7), {3, 3})",
       .inputs = {{"x", kFloating}},
       .attrs = {kSize, kReturnIndices, index_base_attr()},
       .outputs = {"out", "indices"},
       .infer = infer_adaptive_max,
       .decompose = decompose_adaptive_max},
  };
  r.add(rows);
}

}  // namespace pg
