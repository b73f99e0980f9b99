#include "tensor/range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/device_table.h"
#include "tensor/error.h"

namespace pg {
namespace {

constexpr int64_t kFew = 4;

// Calls f with each element as a double, in row-major order.
template <class F>
void each_element(const View& v, F&& f) {
  const int64_t n = v.numel();
  std::vector<char> copy;
  const char* data = static_cast<const char*>(v.data);
  const int size = size_of(v.dtype());
  if (n > 0 && !host_reads(v.type->device)) {
    if (!is_contiguous(v.shape(), *v.strides)) throw Error("the elements of a view on a device are not read");
    copy.resize(size_t(n) * size_t(size));
    download(v.type->device, copy.data(), v.data, copy.size());
    data = copy.data();
  }
  Dims index(v.rank(), 0);
  visit_dtype(v.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      f(double(*reinterpret_cast<const T*>(data + at * size)));
      for (int d = v.rank(); d-- > 0;) {
        at += (*v.strides)[d];
        if (++index[d] < v.size(d)) break;
        at -= (*v.strides)[d] * v.size(d);
        index[d] = 0;
      }
    }
  });
}

std::string name_of_type(const Type& type) {
  const std::string text = to_string(type);
  return type.device.is_cpu() && text.ends_with(" cpu") ? text.substr(0, text.size() - 4) : text;
}

std::string elements_of(const View& view) {
  std::string text;
  each_element(view, [&](double x) { text += fmt::format("{}{:.6g}", text.empty() ? "" : ", ", x); });
  return view.rank() == 0 ? text : "{" + text + "}";
}

}  // namespace

Range range_of(const View& view) {
  Range r;
  r.low = std::numeric_limits<double>::infinity();
  r.high = -r.low;
  each_element(view, [&](double x) {
    ++r.count;
    if (std::isnan(x))
      ++r.nans;
    else if (std::isinf(x))
      ++r.infinities;
    else
      r.low = std::min(r.low, x), r.high = std::max(r.high, x);
  });
  if (r.nans + r.infinities == r.count) r.low = r.high = 0;
  return r;
}

std::string describe_range(const View& view, bool elements) {
  const std::string type = name_of_type(*view.type);
  const bool read = view.data && (host_reads(view.type->device) || is_contiguous(view.shape(), *view.strides));
  if (!read || view.numel() == 0) return type;
  if (elements && view.rank() <= 1 && view.numel() <= kFew) return type + " " + elements_of(view);
  const Range r = range_of(view);
  std::string text = type;
  if (r.nans + r.infinities < r.count) text += fmt::format(" in {:.6g}..{:.6g}", r.low, r.high);
  if (r.nans) text += fmt::format(", {} NaN", r.nans);
  if (r.infinities) text += fmt::format(", {} infinite", r.infinities);
  return text;
}

}  // namespace pg
