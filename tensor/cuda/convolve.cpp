#include "tensor/cuda/convolve.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/launch.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t(1) << 30;
constexpr size_t kMostPlans = 4096;
constexpr int kMostAlgorithms = 16;

struct Candidate {
  int algorithm;
  cudnnMathType_t math;
  size_t workspace;
};

// One convolution of one shape.
struct Plan {
  TensorDescriptor x, y;
  FilterDescriptor w;
  ConvolutionDescriptor conv;
  std::vector<Candidate> candidates;  // the ones that give the same bits each time first, then by speed
};

struct Convolutions {
  explicit Convolutions(Stream& stream) { cudnn().cudnnSetStream(handle.get(), stream.handle); }
  CudnnHandle handle;
  std::map<std::pair<ConvShape, ConvPart>, std::unique_ptr<Plan>> plans;
};

struct Forward {
  using Perf = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr auto kFind = &Cudnn::cudnnGetConvolutionForwardAlgorithm_v7;
  static constexpr auto kWorkspace = &Cudnn::cudnnGetConvolutionForwardWorkspaceSize;
  static constexpr auto kRun = &Cudnn::cudnnConvolutionForward;
  static auto a(const Plan& p) { return p.x.get(); }
  static auto b(const Plan& p) { return p.w.get(); }
  static auto to(const Plan& p) { return p.y.get(); }
};
struct ByInput {
  using Perf = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr auto kFind = &Cudnn::cudnnGetConvolutionBackwardDataAlgorithm_v7;
  static constexpr auto kWorkspace = &Cudnn::cudnnGetConvolutionBackwardDataWorkspaceSize;
  static constexpr auto kRun = &Cudnn::cudnnConvolutionBackwardData;
  static auto a(const Plan& p) { return p.w.get(); }
  static auto b(const Plan& p) { return p.y.get(); }
  static auto to(const Plan& p) { return p.x.get(); }
};
struct ByWeight {
  using Perf = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr auto kFind = &Cudnn::cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  static constexpr auto kWorkspace = &Cudnn::cudnnGetConvolutionBackwardFilterWorkspaceSize;
  static constexpr auto kRun = &Cudnn::cudnnConvolutionBackwardFilter;
  static auto a(const Plan& p) { return p.x.get(); }
  static auto b(const Plan& p) { return p.y.get(); }
  static auto to(const Plan& p) { return p.w.get(); }
};

cudnnDataType_t type_of(DType t) {
  switch (t) {
    case DType::kFloat64:
      return CUDNN_DATA_DOUBLE;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// Sizes as cuDNN takes them: two or three spatial dims, after `lead`.
struct Sizes {
  std::vector<int> values;
  Sizes(const ConvShape& s, std::initializer_list<int64_t> lead, const Three& spatial) {
    for (int64_t n : lead) values.push_back(int(n));
    for (size_t d = s.volume ? 0 : 1; d < 3; ++d) values.push_back(int(spatial[d]));
  }
  int count() const { return int(values.size()); }
  const int* data() const { return values.data(); }
};

void describe(const TensorDescriptor& to, const ConvShape& s, int64_t channels, const Three& spatial) {
  const Sizes sizes(s, {s.n, channels}, spatial);
  std::vector<int> strides(sizes.values.size(), 1);
  int stride = 1;
  const auto place = [&](size_t d) { strides[d] = std::exchange(stride, stride * sizes.values[d]); };
  if (s.last) place(1);
  for (size_t d = strides.size(); d-- > 0;)
    if (d != 1 || !s.last) place(d);
  cudnn().cudnnSetTensorNdDescriptor(to.get(), type_of(s.dtype), sizes.count(), sizes.data(), strides.data());
}

void describe(const Plan& plan, const ConvShape& s) {
  describe(plan.x, s, s.in_channels, s.in);
  describe(plan.y, s, s.out_channels, s.out);
  const Sizes kernel(s, {s.out_channels, s.in_channels / s.groups}, s.kernel);
  cudnn().cudnnSetFilterNdDescriptor(plan.w.get(), type_of(s.dtype), s.last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW,
                                     kernel.count(), kernel.data());
  const Sizes padding(s, {}, s.padding), stride(s, {}, s.stride), dilation(s, {}, s.dilation);
  cudnn().cudnnSetConvolutionNdDescriptor(plan.conv.get(), padding.count(), padding.data(), stride.data(),
                                          dilation.data(), CUDNN_CROSS_CORRELATION,
                                          s.dtype == DType::kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  cudnn().cudnnSetConvolutionGroupCount(plan.conv.get(), int(s.groups));
}

// Tensor cores read float32 as TF32, which has fewer digits.
bool may_use_tensor_cores(DType t) { return is_half(t); }

bool unsupported(cudnnStatus_t status) { return int(status) / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED; }

template <class P>
void find_algorithms(cudnnHandle_t handle, Plan& plan, DType dtype) {
  const Cudnn& c = cudnn();
  c.cudnnSetConvolutionMathType(plan.conv.get(), may_use_tensor_cores(dtype) ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
  typename P::Perf found[kMostAlgorithms] = {};
  int count = 0;
  const cudnnStatus_t status =
      (c.*P::kFind)
          .status(handle, P::a(plan), P::b(plan), plan.conv.get(), P::to(plan), kMostAlgorithms, &count, found);
  if (unsupported(status)) return;
  (c.*P::kFind).require(status);
  std::stable_sort(found, found + count, [](const auto& a, const auto& b) {
    return (a.determinism == CUDNN_DETERMINISTIC) > (b.determinism == CUDNN_DETERMINISTIC);
  });
  for (int i = 0; i < count; ++i) {
    Candidate next{int(found[i].algo), may_use_tensor_cores(dtype) ? found[i].mathType : CUDNN_FMA_MATH, 0};
    c.cudnnSetConvolutionMathType(plan.conv.get(), next.math);
    if (found[i].status != CUDNN_STATUS_SUCCESS ||
        (c.*P::kWorkspace)
                .status(handle, P::a(plan), P::b(plan), plan.conv.get(), P::to(plan), found[i].algo, &next.workspace) !=
            CUDNN_STATUS_SUCCESS ||
        next.workspace > kMostWorkspace)
      continue;
    plan.candidates.push_back(next);
  }
}

template <class P>
Plan& plan_of(Convolutions& kept, const ConvShape& s, ConvPart part) {
  if (kept.plans.size() > kMostPlans) kept.plans.clear();
  std::unique_ptr<Plan>& plan = kept.plans[{s, part}];
  if (plan) return *plan;
  auto made = std::make_unique<Plan>();
  describe(*made, s);
  find_algorithms<P>(kept.handle.get(), *made, s.dtype);
  plan = std::move(made);
  return *plan;
}

template <class P>
cudnnStatus_t try_candidate(Stream& stream, cudnnHandle_t handle, const Plan& plan, const Candidate& candidate,
                            const void* a, const void* b, void* to, const void* alpha, const void* beta) {
  const Scratch workspace(stream, candidate.workspace);
  cudnn().cudnnSetConvolutionMathType(plan.conv.get(), candidate.math);
  return (cudnn().*P::kRun)
      .status(handle, alpha, P::a(plan), a, P::b(plan), b, plan.conv.get(),
              decltype(P::Perf::algo)(candidate.algorithm), workspace.data(), candidate.workspace, beta, P::to(plan),
              to);
}

// to = the result, or is added to it.
template <class P>
bool run(Stream& stream, const ConvShape& s, ConvPart part, const void* a, const void* b, void* to, bool add) {
  Convolutions& kept = kept_by<Convolutions>(stream);
  Plan& plan = plan_of<P>(kept, s, part);
  const float one = 1, old = add;
  const double wide_one = 1, wide_old = add;
  const bool wide = s.dtype == DType::kFloat64;
  while (!plan.candidates.empty()) {
    const cudnnStatus_t status = try_candidate<P>(stream, kept.handle.get(), plan, plan.candidates.front(), a, b, to,
                                                  wide ? static_cast<const void*>(&wide_one) : &one,
                                                  wide ? static_cast<const void*>(&wide_old) : &old);
    if (!unsupported(status)) {
      (cudnn().*P::kRun).require(status);
      return true;
    }
    plan.candidates.erase(plan.candidates.begin());
  }
  return false;
}

bool run(Stream& stream, const ConvShape& s, ConvPart part, const void* a, const void* b, void* to, bool add) {
  if (part == ConvPart::kForward) return run<Forward>(stream, s, part, a, b, to, add);
  if (part == ConvPart::kInput) return run<ByInput>(stream, s, part, a, b, to, add);
  return run<ByWeight>(stream, s, part, a, b, to, add);
}

int64_t elements(const Three& size) { return size[0] * size[1] * size[2]; }

}  // namespace

// cuDNN counts elements with 32 bits, so that large batches go in parts.
bool convolve(Stream& stream, const ConvShape& shape, ConvPart part, const void* a, const void* b, void* to) {
  const int64_t x = shape.in_channels * elements(shape.in), y = shape.out_channels * elements(shape.out);
  const int64_t most = INT32_MAX / std::max(x, y);
  if (most == 0 || shape.out_channels * (shape.in_channels / shape.groups) * elements(shape.kernel) > INT32_MAX)
    throw Error("cuda: cuDNN convolves images and weights of fewer than 2^31 elements");
  const int64_t bytes = size_of(shape.dtype), a_bytes = part == ConvPart::kInput ? 0 : x * bytes,
                b_bytes = part == ConvPart::kForward ? 0 : y * bytes,
                to_bytes = part == ConvPart::kForward ? y * bytes
                           : part == ConvPart::kInput ? x * bytes
                                                      : 0;
  for (int64_t at = 0; at < shape.n; at += most) {
    ConvShape some = shape;
    some.n = std::min(most, shape.n - at);
    if (!run(stream, some, part, static_cast<const char*>(a) + at * a_bytes, static_cast<const char*>(b) + at * b_bytes,
             static_cast<char*>(to) + at * to_bytes, at > 0 && part == ConvPart::kWeight))
      return false;
  }
  return true;
}

}  // namespace pg::cuda
