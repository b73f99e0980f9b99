#include "tensor/cpu/onednn/onednn_common.h"

#include <sys/mman.h>

#include <string>

#include "tensor/cpu/isa.h"
#include "tensor/thread_end.h"

namespace pg::cpu::onednn {

namespace {

// Sets the library's limit before its first use, when the library reads it. Not called below AVX2.
dnnl::engine make_engine() {
  if (isa() == Isa::kAvx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  return dnnl::engine(dnnl::engine::kind::cpu, 0);
}

}  // namespace

dnnl::engine& engine() {
  static dnnl::engine e = make_engine();
  return e;
}

dnnl::stream& stream() { return per_thread<dnnl::stream, dnnl::stream>(engine()); }

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

#if DNNL_VERSION_MAJOR >= 3
dnnl::convolution_forward::primitive_desc conv_forward_desc(const memory::desc& x, const memory::desc& w,
                                                            const memory::desc& b, const memory::desc& y,
                                                            const ConvDims& d, const dnnl::primitive_attr& attr) {
  return {engine(),
          dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          x,
          w,
          b,
          y,
          d.strides,
          d.dilates,
          d.pad_lo,
          d.pad_hi,
          attr};
}
dnnl::convolution_backward_data::primitive_desc conv_data_desc(const memory::desc& x, const memory::desc& w,
                                                               const memory::desc& y, const ConvDims& d,
                                                               const dnnl::convolution_forward::primitive_desc& hint) {
  return {
      engine(),         dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates, d.pad_lo, d.pad_hi, hint,
      user_scratchpad()};
}
dnnl::convolution_backward_weights::primitive_desc conv_weights_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {
      engine(),         dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates, d.pad_lo, d.pad_hi, hint,
      user_scratchpad()};
}
#else
dnnl::convolution_forward::primitive_desc conv_forward_desc(const memory::desc& x, const memory::desc& w,
                                                            const memory::desc& b, const memory::desc& y,
                                                            const ConvDims& d, const dnnl::primitive_attr& attr) {
  return {dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x, w,
                                          b, y, d.strides, d.dilates, d.pad_lo, d.pad_hi),
          attr, engine()};
}
dnnl::convolution_backward_data::primitive_desc conv_data_desc(const memory::desc& x, const memory::desc& w,
                                                               const memory::desc& y, const ConvDims& d,
                                                               const dnnl::convolution_forward::primitive_desc& hint) {
  return {dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates,
                                                d.pad_lo, d.pad_hi),
          user_scratchpad(), engine(), hint};
}
dnnl::convolution_backward_weights::primitive_desc conv_weights_desc(
    const memory::desc& x, const memory::desc& w, const memory::desc& y, const ConvDims& d,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {dnnl::convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, x, w, y, d.strides, d.dilates,
                                                   d.pad_lo, d.pad_hi),
          user_scratchpad(), engine(), hint};
}
#endif

void check_room() {
  constexpr size_t kRoom = 16 << 20;
  void* probe = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) throw NoRoom();
  munmap(probe, kRoom);
}

// The names of kernels have parts, such as "x64:gemm:jit".
void check_usable(const dnnl::primitive_desc_base& pd) {
  const std::string name = ':' + std::string(pd.impl_info_str()) + ':';
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has(":gemm:") || has(":ref:")) throw NoKernel();
}

void check_forward(DType type, const ConvShape& s) {
  for (size_t d = 0; d < 3 && type == DType::kBFloat16; ++d) {
    const int64_t reach = (s.kernel[d] - 1) * s.dilation[d] + 1;
    const bool only_padding = s.pad[d] >= reach || (s.out[d] - 1) * s.stride[d] - s.pad[d] >= s.in[d];
    const bool leaves_out = s.stride[d] > s.kernel[d] && s.taps() > 1;
    if (only_padding || leaves_out) throw NoKernel();
  }
}

void check_weights(DType type, const ConvShape& s, const dnnl::primitive_desc_base& pd) {
  if (type != DType::kBFloat16 || s.groups == 1) return;
  if (std::string(pd.impl_info_str()).find("jit_dw") == std::string::npos) throw NoKernel();
}

namespace {

// Returns the spatial dims without leading ones, but at least `nd` of them.
memory::dims tail_dims(const std::array<int64_t, 3>& v, int nd) { return memory::dims(v.begin() + (3 - nd), v.end()); }

Type type_of(DType type) { return type == DType::kBFloat16 ? Type::bf16 : Type::f32; }

}  // namespace

int spatial_dims(const ConvShape& s) {
  const auto trivial = [&](int i) { return s.in[i] == 1 && s.kernel[i] == 1 && s.out[i] == 1 && s.pad[i] == 0; };
  if (!trivial(0)) return 3;
  return trivial(1) ? 1 : 2;
}

ConvDescs describe(DType dtype, const ConvShape& s, bool with_bias, int last_dims) {
  const Type type = type_of(dtype);
  const bool last = last_dims > 0;
  const int nd = last ? last_dims : spatial_dims(s);
  constexpr Tag kPlain[] = {Tag::ncw, Tag::nchw, Tag::ncdhw}, kLast[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  const Tag plain_x = (last ? kLast : kPlain)[nd - 1];
  const Tag plain_w = s.groups > 1 ? (nd == 1   ? Tag::goiw
                                      : nd == 2 ? Tag::goihw
                                                : Tag::goidhw)
                                   : (nd == 1   ? Tag::oiw
                                      : nd == 2 ? Tag::oihw
                                                : Tag::oidhw);
  memory::dims x{s.n, s.ic}, y{s.n, s.oc}, w;
  if (s.groups > 1)
    w = {s.groups, s.oc / s.groups, s.ic / s.groups};
  else
    w = {s.oc, s.ic};
  ConvDescs d;
  for (int i = 3 - nd; i < 3; ++i) {
    x.push_back(s.in[i]);
    y.push_back(s.out[i]);
    w.push_back(s.kernel[i]);
    d.dims.dilates.push_back(s.dilation[i] - 1);
    d.dims.pad_hi.push_back((s.out[i] - 1) * s.stride[i] + s.dilation[i] * (s.kernel[i] - 1) + 1 - s.in[i] - s.pad[i]);
  }
  d.dims.strides = tail_dims(s.stride, nd);
  d.dims.pad_lo = tail_dims(s.pad, nd);
  d.x = memory::desc(x, type, last ? plain_x : Tag::any);
  d.w = memory::desc(w, type, Tag::any);
  d.dw = memory::desc(w, Type::f32, Tag::any);
  d.y = memory::desc(y, type, last ? plain_x : Tag::any);
  d.b = with_bias ? memory::desc({s.oc}, Type::f32, Tag::a) : memory::desc();
  d.px = memory::desc(x, type, plain_x);
  d.pw = memory::desc(w, type, plain_w);
  d.pdw = memory::desc(w, Type::f32, plain_w);
  d.py = memory::desc(y, type, plain_x);
  return d;
}

memory::desc some_channels(DType type, const ConvShape& s, int64_t channels, bool last) {
  memory::dims dims{s.n, s.oc}, strides{channels * s.out_plane(), last ? 1 : s.out_plane()};
  int64_t step = (last ? channels : 1) * s.out_plane();
  for (int i = 3 - spatial_dims(s); i < 3; ++i) {
    dims.push_back(s.out[i]);
    strides.push_back(step /= s.out[i]);
  }
  return memory::desc(dims, type_of(type), strides);
}

}  // namespace pg::cpu::onednn
