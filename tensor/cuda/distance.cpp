// Distances of rows by hand-written kernels (kernels/distance.cuh). float16 and bfloat16 go through float32.
#include <cmath>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/distance_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

const char* order_name(double p) {
  return p == 0 ? "kZero" : p == 1 ? "kOne" : p == 2 ? "kTwo" : std::isinf(p) ? "kInfinite" : "kAny";
}

// One call. The inputs of the result are those from `x` on.
class Distances {
 public:
  Distances(const KernelArgs& a, size_t x)
      : stream_(stream_at(a.stream)),
        compute_(a.in[x].dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        x_(stream_, a.in[x], compute_),
        y_(stream_, a.in[x + 1], compute_) {
    args.x = x_.data(), args.y = y_.data();
    args.batch = a.in[x].size(0), args.rows = a.in[x].size(1), args.width = a.in[x].size(2);
    args.others = a.in[x + 1].size(1);
    args.p = a.attr<double>("p");
  }
  DType compute() const { return compute_; }
  // Calls run(the kernel) with the result in the compute dtype.
  template <class F>
  void into(const View& out, const char* kernel, F run) {
    if (out.numel() == 0) return;
    std::optional<Temporary> wide;
    args.out = out.dtype() == compute_ ? out.data : wide.emplace(stream_, compute_, out).view.data;
    run(stream_, family_kernel(stream_, "distance", distance_types(compute_, order_name(args.p)), kernel));
    if (wide) convert_view(stream_, wide->view, out);
  }
  kernels::DistanceArgs args = {};

 private:
  Stream& stream_;
  const DType compute_;
  const Converted x_, y_;
};

void row_distances(const KernelArgs& a) {
  constexpr int64_t kSide = 16;  // rows of x and of y that a block visits
  Distances d(a, 0);
  const int64_t blocks = d.args.batch * ((d.args.rows + kSide - 1) / kSide) * ((d.args.others + kSide - 1) / kSide);
  d.into(a.out[0], "distances",
         [&](Stream& stream, CUfunction kernel) { launch_blocks(stream, kernel, blocks, kSide * kSide, &d.args); });
}

void row_distances_backward(const KernelArgs& a) {
  Distances d(a, 1);
  const Converted dy(stream_at(a.stream), a.in[0], d.compute()), distance(stream_at(a.stream), a.in[3], d.compute());
  d.args.dy = dy.data(), d.args.distance = distance.data();
  d.into(a.out[0], "distances_back",
         [&](Stream& stream, CUfunction kernel) { launch(stream, kernel, a.out[0].numel(), &d.args); });
}

}  // namespace

std::string distance_types(DType t, const char* order) {
  return fmt::format("using T = {};\n#define kOrder {}\n", type_text(t), order);
}

std::vector<KernelRow> distance_rows() {
  return {{"row_distances", row_distances}, {"row_distances_backward", row_distances_backward}};
}

}  // namespace pg::cuda
