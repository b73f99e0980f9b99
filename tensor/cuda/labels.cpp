// Losses over class labels by hand-written kernels (kernels/labels.cuh). A label out of range is reported late.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/labels_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

constexpr unsigned kReducingThreads = 512;
constexpr int64_t kFewClasses = 64;  // which one thread visits

// A call on samples of an array of `shape`. `first`: the number of the input with the labels; that with the weights
// follows.
struct Labels {
  Labels(const KernelArgs& a, const char* op, const Dims& shape, DType t, size_t first)
      : stream(stream_at(a.stream)),
        compute(t == DType::kFloat64 ? t : DType::kFloat32),
        types(label_types(t, a.in[first].dtype())),
        weight(stream, a.in[first + 1], compute) {
    const int dim = shape.size() > 1 ? 1 : 0;
    args.samples = a.in[first].numel();
    args.n = shape[dim];
    args.inner = 1;
    for (int d = dim + 1; d < shape.size(); ++d) args.inner *= shape[d];
    args.target = a.in[first].data;
    args.weight = weight.data();
    args.out = a.out[0].data;
    args.ignore = a.attr<int64_t>("ignore_index");
    args.base = a.attr<int64_t>("index_base");
    args.fault = stream.fault->get();
    Refusal r;
    r.kind = Refusal::Kind::kLabel;
    r.op = &a.op;
    r.input = first;
    r.place = a.place;
    r.argument = "target";
    r.name = op;
    r.size = args.n;
    r.base = args.base;
    r.ignored = args.ignore;
    args.report = report_number(r);
  }
  CUfunction kernel(const char* name) const { return family_kernel(stream, "labels", types, name); }
  void over(int64_t count, const char* name) const {
    if (count) launch(stream, kernel(name), count, &args);
  }
  void over_samples(const char* name) const { over(args.samples, name); }
  void in_one_block(const char* name) const { launch_blocks(stream, kernel(name), 1, kReducingThreads, &args); }

  Stream& stream;
  const DType compute;
  const std::string types;
  const Converted weight;
  kernels::LabelArgs args = {};
};

// Runs `compute`, which computes the loss of each sample, and reduces the losses.
template <class F>
void reduced(const KernelArgs& a, Labels& k, const View& norm, F compute) {
  const Scratch memory(k.stream, size_t(k.args.samples) * 16);
  k.args.x = a.in[0].data;
  k.args.losses = static_cast<double*>(memory.data());
  k.args.factors = k.args.losses + k.args.samples;
  k.args.norm = norm.data;
  compute();
  const std::string& how = a.attr<std::string>("reduction");
  k.args.mean = how == "mean";
  if (how != "none") return k.in_one_block("reduce_losses");
  k.over_samples("copy_losses");
  fill_view(k.stream, norm, 1);
}

void nll(const KernelArgs& a) {
  Labels k(a, "nll_loss", a.in[0].shape(), a.in[0].dtype(), 1);
  reduced(a, k, a.out[1], [&] { k.over_samples("nll"); });
}

void nll_dx(const KernelArgs& a) {
  const View& out = a.out[0];
  if (out.numel() == 0) return;
  Labels k(a, "nll_loss", out.shape(), out.dtype(), 0);
  const Converted scale(k.stream, a.in[2], k.compute);
  k.args.scale = scale.data();
  k.args.one_scale = a.in[2].rank() == 0;
  fill_view(k.stream, out, 0);
  k.over_samples("nll_dx");
}

void cross_entropy(const KernelArgs& a) {
  Labels k(a, "cross_entropy", a.in[0].shape(), a.in[0].dtype(), 1);
  k.args.lse = a.out[1].data;
  fill_view(k.stream, a.out[3], 0);  // the kernels compute no rest
  k.args.smoothing = a.attr<double>("label_smoothing");
  reduced(a, k, a.out[2], [&] {
    if (k.args.n <= kFewClasses || k.args.inner >= 32) return k.over_samples("entropy_threads");
    launch_blocks(k.stream, k.kernel("entropy_blocks"), k.args.samples, k.args.n < 1024 ? 64 : kThreads, &k.args);
  });
}

void cross_entropy_dx(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  Labels k(a, "cross_entropy", a.in[0].shape(), a.in[0].dtype(), 1);
  const Converted scale(k.stream, a.in[5], k.compute);
  const Scratch sum(k.stream, sizeof(double));
  k.args.x = a.in[0].data;
  k.args.lse = a.in[3].data;
  k.args.scale = scale.data();
  k.args.one_scale = a.in[5].rank() == 0;
  k.args.smoothing = a.attr<double>("label_smoothing");
  k.args.losses = static_cast<double*>(sum.data());
  k.args.weight_sum = k.args.losses;
  if (k.args.weight && k.args.smoothing != 0) k.in_one_block("sum_weights");
  k.over(a.out[0].numel(), "entropy_dx");
}

}  // namespace

std::string label_types(DType t, DType label) {
  return fmt::format("using T = {};\nusing L = {};\n", type_text(t), type_text(label));
}

std::vector<KernelRow> label_rows() {
  return {{"nll_fused", nll},
          {"nll_dx", nll_dx},
          {"cross_entropy_fused", cross_entropy},
          {"cross_entropy_dx", cross_entropy_dx}};
}

}  // namespace pg::cuda
