#include "tensor/cpu/pointwise/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/cpu/move/copy.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

bool is_condition(const KernelArgs& args, size_t i) { return args.op.inputs[i].dtypes == kBoolOnly; }

// The dtype of the inputs after promotion; conditions keep theirs. Numbers arrive in it already.
DType compute_dtype(const KernelArgs& args) {
  if (args.op.result != Result::kBool) return args.out[0].dtype();
  bool any = false;
  DType t = DType::kBool;
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (!args.in[i] || is_condition(args, i)) continue;
    t = any ? promote(t, args.in[i].dtype()) : args.in[i].dtype();
    any = true;
  }
  return t;
}

constexpr bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

// Position of the first element that satisfies `bad`, or -1.
template <class T, class Bad>
int64_t find_element(const View& v, Bad bad) {
  const T* data = v.as<const T>();
  const int64_t n = v.numel();
  if (is_contiguous(v.shape(), *v.strides)) {
    for (int64_t i = 0; i < n; ++i)
      if (bad(data[i])) return i;
    return -1;
  }
  Dims index(v.rank(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < v.rank(); ++d) offset += index[d] * (*v.strides)[d];
    if (bad(data[offset])) return i;
    for (int d = v.rank() - 1; d >= 0 && ++index[d] == v.size(d); --d) index[d] = 0;
  }
  return -1;
}

// One operand of a call.
struct Operand {
  const char* data = nullptr;
  DType dtype = DType::kFloat32, work = DType::kFloat32;  // as stored, as computed
  ConvertFn convert = nullptr;                            // gathers and converts into a tile
  bool linear = false;                                    // contiguous over the whole output
  bool constant = false;                                  // one element for all
  bool periodic = false;                                  // the same elements in each inner run
  Dims strides;                                           // over the collapsed dims
  Ref<Buffer> copy;                                       // holds the elements when they were copied together first
  bool direct() const { return dtype == work; }
};

// The index space of the output with neighbouring dims merged where all operands allow it.
struct Space {
  Dims shape;
  Operand in[kMaxSpanInputs];
  int count = 0;
  int64_t inner() const { return shape.empty() ? 1 : shape.back(); }

  // Elements from the start of operand k to position `pos`; `index` (optional) gets the coordinates.
  int64_t offset(const Operand& o, int64_t pos, int64_t* index = nullptr) const {
    int64_t out = 0;
    for (int d = shape.size() - 1; d >= 0; --d) {
      const int64_t q = pos / shape[d], r = pos - q * shape[d];
      out += r * o.strides[d];
      if (index) index[d] = r;
      pos = q;
    }
    return out;
  }
};

bool merges(const Space& s, int outer, int64_t inner_size) {
  for (int k = 0; k < s.count; ++k)
    if (s.in[k].strides[outer] != s.in[k].strides[outer + 1] * inner_size) return false;
  return true;
}

void collapse(Space& s) {
  for (int d = s.shape.size() - 1; d >= 0; --d)
    if (s.shape[d] == 1) {
      s.shape.erase(d);
      for (int k = 0; k < s.count; ++k) s.in[k].strides.erase(d);
    }
  for (int d = s.shape.size() - 2; d >= 0; --d) {
    if (!merges(s, d, s.shape[d + 1])) continue;
    s.shape[d] *= s.shape[d + 1];
    s.shape.erase(d + 1);
    for (int k = 0; k < s.count; ++k) {
      s.in[k].strides[d] = s.in[k].strides[d + 1];
      s.in[k].strides.erase(d + 1);
    }
  }
  const Dims dense = contiguous_strides(s.shape);
  for (int k = 0; k < s.count; ++k) {
    Operand& o = s.in[k];
    o.linear = o.strides == dense;
    const auto zeros = std::count(o.strides.begin(), o.strides.end(), 0);
    o.constant = zeros == o.strides.size();
    o.periodic = o.constant || (zeros == o.strides.size() - 1 && o.strides.back() != 0);
  }
}

// Walking a large transposed operand element by element would miss the cache at each: it is copied in blocks first.
void copy_if_scattered(const KernelArgs& args, Space& s) {
  constexpr int64_t kLarge = 1 << 14;
  for (int k = 0; k < s.count; ++k) {
    Operand& o = s.in[k];
    if (s.shape.empty() || !args.in[k] || args.in[k].numel() < kLarge || args.in[k].numel() != numel(s.shape)) continue;
    if (std::abs(o.strides.back()) < 8) continue;
    o.copy = Buffer::allocate(Device{}, Bytes::of(numel(s.shape), uint64_t(size_of(o.dtype))));
    copy_strided(args.in[k], o.copy->data);
    o.data = static_cast<const char*>(o.copy->data);
    o.strides = contiguous_strides(s.shape);
    o.linear = true;
  }
}

// Copies `n` elements of type T along the space, runs of the inner dim inline.
template <class T>
void gather_direct(const Space& s, const Operand& o, int64_t pos, int64_t n, T* tile) {
  const int last = s.shape.size() - 1;
  const int64_t stride = o.strides[last], inner = s.shape[last];
  int64_t index[kMaxRank];
  const T* at = reinterpret_cast<const T*>(o.data) + s.offset(o, pos, index);
  while (true) {
    const int64_t run = std::min(n, inner - index[last]);
    for (int64_t i = 0; i < run; ++i) tile[i] = at[i * stride];
    n -= run;
    if (n == 0) return;
    tile += run;
    at -= index[last] * stride;
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      at += o.strides[d];
      if (++index[d] < s.shape[d]) break;
      at -= s.shape[d] * o.strides[d];
      index[d] = 0;
    }
  }
}

// Fills a tile with the elements [pos, pos + n) of operand o in its computing dtype.
void gather(const Space& s, const Operand& o, int64_t pos, int64_t n, char* tile) {
  const int64_t size = size_of(o.dtype), step = size_of(o.work);
  if (o.linear) return o.convert(n, o.data + pos * size, 1, tile);
  if (o.direct() && size == 4) return gather_direct(s, o, pos, n, reinterpret_cast<uint32_t*>(tile));
  if (o.direct() && size == 8) return gather_direct(s, o, pos, n, reinterpret_cast<uint64_t*>(tile));
  if (o.direct() && size == 1) return gather_direct(s, o, pos, n, reinterpret_cast<uint8_t*>(tile));
  const int last = s.shape.size() - 1;
  int64_t index[kMaxRank];
  int64_t at = s.offset(o, pos, index);
  while (n > 0) {
    const int64_t run = std::min(n, s.shape[last] - index[last]);
    o.convert(run, o.data + at * size, o.strides[last], tile);
    tile += run * step;
    n -= run;
    at -= index[last] * o.strides[last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      at += o.strides[d];
      if (++index[d] < s.shape[d]) break;
      at -= s.shape[d] * o.strides[d];
      index[d] = 0;
    }
  }
}

// What one walk over a piece of the output needs.
struct Walk {
  const Space& space;
  SpanFn fn;
  const double* params;
  char* out;
  int64_t out_size;
  ConvertFn narrow;  // from the computing dtype to the output's, or nullptr
  int64_t work_size;
  bool runs;   // spans stay within an inner run
  bool tiled;  // some operand or the output passes through a tile

  void operator()(int64_t begin, int64_t end) const {
    if (runs && !tiled && space.shape.size() == 2 && all_direct()) return rows(begin, end);
    alignas(64) char tiles[kMaxSpanInputs][kTile * 8];
    alignas(64) char out_tile[kTile * 8];
    const int64_t inner = space.inner();
    // Whole runs a tile, so that periodic operands fill their tile once.
    const int64_t tile = runs ? kTile : kTile / inner * inner;
    uint32_t filled = 0;
    for (int64_t pos = begin; pos < end;) {
      int64_t n = end - pos;
      if (tiled) n = std::min(n, tile);
      if (runs) n = std::min(n, inner - pos % inner);
      const void* in[kMaxSpanInputs];
      uint32_t scalars = 0;
      for (int k = 0; k < space.count; ++k) {
        const bool ready = filled >> k & 1;
        in[k] = ready ? tiles[k] : operand(space.in[k], pos, n, tiles[k], 1u << k, &scalars);
        if (tiled && !runs && space.in[k].periodic && in[k] == tiles[k] && !(scalars >> k & 1)) filled |= 1u << k;
      }
      if (narrow) {
        fn(n, out_tile, in, scalars, params);
        narrow(n, out_tile, 1, out + pos * out_size);
      } else {
        fn(n, out + pos * out_size, in, scalars, params);
      }
      pos += n;
    }
  }

 private:
  bool all_direct() const {
    return std::all_of(space.in, space.in + space.count, [](const Operand& o) { return o.direct(); });
  }

  // Rows of direct operands: pointers that step from row to row.
  void rows(int64_t begin, int64_t end) const {
    const int64_t inner = space.inner();
    const char* in[kMaxSpanInputs];
    int64_t step[kMaxSpanInputs];  // bytes from a row to the next
    uint32_t scalars = 0;
    for (int k = 0; k < space.count; ++k) {
      const Operand& o = space.in[k];
      in[k] = o.data + space.offset(o, begin) * size_of(o.dtype);
      step[k] = o.strides[0] * size_of(o.dtype);
      if (o.strides[1] == 0) scalars |= 1u << k;
    }
    int64_t start = begin % inner;
    for (int64_t pos = begin; pos < end; start = 0) {
      const int64_t n = std::min(end - pos, inner - start);
      fn(n, out + pos * out_size, reinterpret_cast<const void* const*>(in), scalars, params);
      for (int k = 0; k < space.count; ++k)
        in[k] += step[k] - (scalars >> k & 1 ? 0 : start * size_of(space.in[k].dtype));
      pos += n;
    }
  }

  const void* operand(const Operand& o, int64_t pos, int64_t n, char* tile, uint32_t bit, uint32_t* scalars) const {
    const int64_t stride = space.shape.empty() ? 0 : o.strides.back();
    if (stride == 0 && (runs || o.constant)) {
      *scalars |= bit;
      const char* at = o.data + space.offset(o, pos) * size_of(o.dtype);
      if (o.direct()) return at;
      o.convert(1, at, 1, tile);
      return tile;
    }
    if (o.direct() && o.linear) return o.data + pos * size_of(o.dtype);
    if (o.direct() && runs && stride == 1) return o.data + space.offset(o, pos) * size_of(o.dtype);
    gather(space, o, pos, n, tile);
    return tile;
  }
};

// The value that an absent bound of clamp stands for.
struct Bound {
  alignas(8) char data[8];
  Dims strides;
  Bound(DType t, bool upper) {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_integral_v<T>) {
        const T v = upper ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
        std::memcpy(data, &v, sizeof v);
      } else {
        store_number(t, data, upper ? HUGE_VAL : -HUGE_VAL);
      }
    });
  }
};

void run_general(const KernelArgs& args, const SpanRow& row, DType compute, const double* params) {
  const View& out = args.out[0];
  const DType work = is_half(compute) ? DType::kFloat32 : compute;
  const Bound lower(compute, false), upper(compute, true);
  Space space;
  space.shape = out.shape();
  space.count = int(args.in.size());
  bool inner_direct = true;
  for (int k = 0; k < space.count; ++k) {
    const View& v = args.in[k];
    Operand& o = space.in[k];
    o.dtype = v ? v.dtype() : compute;
    o.data = v ? v.as<const char>() : (k == 1 ? lower : upper).data;
    o.work = is_condition(args, size_t(k)) ? DType::kBool : work;
    o.convert = converter(o.dtype, o.work);
    o.strides = v ? broadcast_strides(v.shape(), *v.strides, space.shape) : Dims(space.shape.size(), 0);
  }
  collapse(space);
  copy_if_scattered(args, space);
  for (int k = 0; k < space.count; ++k) {
    const Operand& o = space.in[k];
    const int64_t stride = space.shape.empty() ? 0 : o.strides.back();
    inner_direct &= stride == 0 || (o.direct() && stride == 1);
  }
  const bool boolean = args.op.result == Result::kBool;
  const ConvertFn narrow = !boolean && out.dtype() != work ? converter(work, out.dtype()) : nullptr;
  bool all_linear = true;
  for (int k = 0; k < space.count; ++k) all_linear &= space.in[k].linear && space.in[k].direct();
  const bool runs = space.inner() >= kTile / 4;
  const Walk walk{space,
                  row.fn[int(work)],
                  params,
                  out.as<char>(),
                  size_of(out.dtype()),
                  narrow,
                  size_of(work),
                  runs,
                  narrow || !(all_linear || (runs && inner_direct))};
  parallel_for(out.numel(), std::max<int64_t>(10'000'000 / (row.cost + 200), kTile), walk);
}

}  // namespace

const SpanRow* find_span(std::string_view op) {
  for (const std::span<const SpanRow> table : {basic_spans(), math_spans()})
    for (const SpanRow& row : table)
      if (op == row.op) return &row;
  return nullptr;
}

void span_params(const OpDef& op, const Attrs& attrs, double* params) {
  const size_t count = std::min<size_t>(attrs.size(), kMaxSpanParams);
  for (size_t i = 0; i < count; ++i) {
    const AttrValue& v = attrs[i];
    params[i] = 0;
    if (const auto* number = std::get_if<double>(&v)) params[i] = *number;
    if (const auto* whole = std::get_if<int64_t>(&v)) params[i] = double(*whole);
    if (const auto* flag = std::get_if<bool>(&v)) params[i] = *flag;
    if (const auto* text = std::get_if<std::string>(&v)) {
      const auto& choices = op.attrs[i].choices;
      for (size_t c = 0; c < choices.size(); ++c)
        if (*text == choices[c]) params[i] = double(c);
    }
  }
}

void check_divisor(const OpDef& op, const View& v, SpanCheck check) {
  if (!is_integer(v.dtype())) return;
  const int64_t at = visit_dtype(v.dtype(), [&](auto tag) -> int64_t {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      if (check == SpanCheck::kZeroDivisor) return find_element<T>(v, [](T x) { return x == 0; });
      return find_element<T>(v, [](T x) { return x < T(0); });
    } else {
      return -1;
    }
  });
  if (at < 0) return;
  const bool zero = check == SpanCheck::kZeroDivisor;
  const std::string where = v.rank() == 0 ? "" : fmt::format(" at element {}", at + 1);
  bad_argument(op.name, op.inputs[1].name,
               zero ? "an integer divisor other than zero" : "integer exponents of at least 0",
               (zero ? "0" : "a negative one") + where);
}

void run_pointwise(const KernelArgs& args, const SpanRow& row) {
  const View& out = args.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  if (row.check != SpanCheck::kNothing) check_divisor(args.op, args.in[1], row.check);
  double params[kMaxSpanParams];
  if (args.attrs.size()) span_params(args.op, args.attrs, params);
  const DType compute = compute_dtype(args);
  const SpanFn fn = row.fn[int(compute)];
  const void* in[kMaxSpanInputs];
  uint32_t scalars = 0;
  bool direct = fn != nullptr;
  for (size_t k = 0; direct && k < args.in.size(); ++k) {
    const View& v = args.in[k];
    direct = v && v.dtype() == (is_condition(args, k) ? DType::kBool : compute);
    if (!direct) break;
    in[k] = v.data;
    const int64_t count = v.numel();
    if (count == n)
      direct = n == 1 || is_contiguous(v.shape(), *v.strides);
    else if (count == 1)
      scalars |= 1u << k;
    else
      direct = false;
  }
  if (!direct) return run_general(args, row, compute, params);
  if (n * row.cost < 20'000'000) return fn(n, out.data, in, scalars, params);
  const int64_t out_size = size_of(out.dtype());
  parallel_for(n, 10'000'000 / row.cost, [&](int64_t begin, int64_t end) {
    const void* part[kMaxSpanInputs];
    for (size_t k = 0; k < args.in.size(); ++k)
      part[k] = static_cast<const char*>(in[k]) + (scalars >> k & 1 ? 0 : begin * size_of(args.in[k].dtype()));
    fn(end - begin, out.as<char>() + begin * out_size, part, scalars, params);
  });
}

}  // namespace pg::cpu
