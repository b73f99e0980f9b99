// The reads of grid_sample and deform_conv2d by hand-written kernels (kernels/points.cuh).
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/points_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::PointsArgs;
using kernels::TapsArgs;

// `planes`: an array batch x channels x positions.
PointsArgs points_args(const KernelArgs& a, const View& planes, size_t index_input) {
  const View& index = a.in[index_input];
  Refusal r;
  r.op = &a.op;
  r.input = index_input;
  r.place = a.place;
  r.argument = "index";
  r.size = planes.size(2) + 1;
  r.base = -1;
  r.shape = index.shape();
  PointsArgs args = {};
  args.index = index.as<const int32_t>();
  args.out = a.out[0].data;
  args.batch = planes.size(0), args.channels = planes.size(1), args.positions = planes.size(2);
  args.taps = index.size(1), args.points = index.size(2);
  args.fault = stream_at(a.stream).fault->get();
  args.report = report_number(r);
  return args;
}

void run(const KernelArgs& a, const char* name, int64_t count, const PointsArgs& args) {
  if (count == 0) return;
  Stream& stream = stream_at(a.stream);
  launch(stream, family_kernel(stream, "points", point_types(a.out[0].dtype(), "kZero", false), name), count, &args);
}

void sample_points(const KernelArgs& a) {
  PointsArgs args = points_args(a, a.in[0], 1);
  args.x = a.in[0].data;
  args.weight = a.in[2] ? a.in[2].data : nullptr;
  if (args.taps == 0 && a.out[0].numel()) return fill_view(stream_at(a.stream), a.out[0], 0);
  run(a, "sample_points", a.out[0].numel(), args);
}

void sample_points_back(const KernelArgs& a) {
  PointsArgs args = points_args(a, a.out[0], 1);
  args.dy = a.in[0].data;
  args.weight = a.in[2] ? a.in[2].data : nullptr;
  if (a.out[0].numel() == 0) return;
  AtomicSums sums(stream_at(a.stream), a.out[0]);
  args.out = sums.data();
  if (a.in[1].numel()) run(a, "sample_points_back", a.in[0].numel(), args);
  sums.finish();
}

void sample_points_weight(const KernelArgs& a) {
  PointsArgs args = points_args(a, a.in[1], 2);
  args.dy = a.in[0].data;
  args.x = a.in[1].data;
  run(a, "sample_points_weight", a.out[0].numel(), args);
}

void sample_taps(const KernelArgs& a) {
  const View& out = a.out[0];
  if (out.numel() == 0) return;
  const Ints& size = a.attr<Ints>("size");
  const std::string& mode = a.attr<std::string>("padding_mode");
  TapsArgs args = {};
  args.out = out.as<int32_t>();
  args.batch = out.size(0), args.points = out.size(2);
  args.dims = int32_t(size.size());
  args.taps = int32_t(a.attr<int64_t>("taps"));
  for (size_t d = 0; d < size.size(); ++d) args.coordinates[d] = a.in[d].data, args.size[d] = int32_t(size[d]);
  const char* outside = args.taps < 4 || mode == "zeros" ? "kZero" : mode == "border" ? "kBorder" : "kReflect";
  Stream& stream = stream_at(a.stream);
  const std::string types = point_types(a.in[0].dtype(), outside, a.attr<bool>("align_corners"));
  launch(stream, family_kernel(stream, "points", types, "sample_taps"), args.batch * args.points, &args);
}

}  // namespace

std::string point_types(DType t, const char* outside, bool corners) {
  return fmt::format("using T = {};\n#define OUTSIDE {}\nconstexpr bool kCorners = {};\n", type_text(t), outside,
                     corners);
}

std::vector<KernelRow> point_rows() {
  return {{"sample_points", sample_points},
          {"sample_points_back", sample_points_back},
          {"sample_points_weight", sample_points_weight},
          {"sample_taps", sample_taps}};
}

}  // namespace pg::cuda
