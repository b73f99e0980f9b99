// Fourier transforms along one dim by cuFFT. Factors, and lines made contiguous, are kernels of our own
// (kernels/fft.cuh).
#include <optional>

#include "tensor/cpu/lru_cache.h"
#include "tensor/cuda/capture.h"
#include "tensor/cuda/cufft.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/fft_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

constexpr size_t kMostPlans = 64;  // of a stream; the library keeps tables of each in device memory

// `batch` transforms of n points. Points are `stride` elements apart, and lines `from` and `to`. The bytes are a key.
struct Transform {
  int64_t type, n, stride, from, to, batch;
};

class TransformPlan {
 public:
  TransformPlan(const Stream& stream, const Transform& t) {
    const Cufft& c = cufft();
    c.cufftCreate(&handle_);
    try {
      c.cufftSetStream(handle_, stream.handle);
      c.cufftSetAutoAllocation(handle_, 0);
      long long n = t.n;
      // cuFFT reads no size of a dim here but the strides beside it, as long as the pointer is not null.
      c.cufftMakePlanMany64(handle_, 1, &n, &n, t.stride, t.from, &n, t.stride, t.to, cufftType(t.type), t.batch,
                            &workspace_);
    } catch (...) {
      c.cufftDestroy.status(handle_);
      throw;
    }
  }
  ~TransformPlan() { cufft().cufftDestroy.status(handle_); }
  TransformPlan(const TransformPlan&) = delete;

  void run(Stream& stream, cufftType type, bool inverse, const void* in, void* out) const {
    const Cufft& c = cufft();
    const Scratch area(stream, workspace_);
    c.cufftSetWorkArea(handle_, area.data());
    void* from = const_cast<void*>(in);
    const int sign = inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
    using F = cufftReal;
    using D = cufftDoubleReal;
    using FC = cufftComplex;
    using DC = cufftDoubleComplex;
    if (type == CUFFT_C2C) return c.cufftExecC2C(handle_, static_cast<FC*>(from), static_cast<FC*>(out), sign);
    if (type == CUFFT_Z2Z) return c.cufftExecZ2Z(handle_, static_cast<DC*>(from), static_cast<DC*>(out), sign);
    if (type == CUFFT_R2C) return c.cufftExecR2C(handle_, static_cast<F*>(from), static_cast<FC*>(out));
    if (type == CUFFT_D2Z) return c.cufftExecD2Z(handle_, static_cast<D*>(from), static_cast<DC*>(out));
    if (type == CUFFT_C2R) return c.cufftExecC2R(handle_, static_cast<FC*>(from), static_cast<F*>(out));
    c.cufftExecZ2D(handle_, static_cast<DC*>(from), static_cast<D*>(out));
  }

 private:
  cufftHandle handle_ = 0;
  size_t workspace_ = 0;
};

struct TransformPlans {
  explicit TransformPlans(Stream&) {}
  cpu::LruCache<Transform, std::shared_ptr<const TransformPlan>> plans{kMostPlans};
};

void execute(Stream& stream, const Transform& t, bool inverse, const void* from, void* to) {
  const auto plan =
      kept_by<TransformPlans>(stream).plans.get(t, [&] { return std::make_shared<const TransformPlan>(stream, t); });
  if (stream.capture) stream.capture->kept.push_back(plan);
  plan->run(stream, cufftType(t.type), inverse, from, to);
}

enum Kind { kComplex, kFromReal, kToReal };

cufftType type_of(Kind kind, DType t) {
  const bool wide = t == DType::kFloat64;
  if (kind == kComplex) return wide ? CUFFT_Z2Z : CUFFT_C2C;
  if (kind == kFromReal) return wide ? CUFFT_D2Z : CUFFT_R2C;
  return wide ? CUFFT_Z2D : CUFFT_C2R;
}

// An array of points along the dim of the transform.
struct Points {
  void* data;
  int64_t points;
  int32_t parts, last;
};

// Factors of the points 0 and n / 2, and of the others.
struct Factors {
  double ends = 1, inside = 1;
  bool real_ends = false;
  bool none() const { return ends == 1 && inside == 1 && !real_ends; }
};

// One call: outer x points x inner arrays, of which cuFFT takes lines that are contiguous, or all `inner` apart.
class Call {
 public:
  Call(const KernelArgs& a, Kind kind, int64_t n)
      : stream_(stream_at(a.stream)), kind_(kind), dtype_(a.out[0].dtype()), n_(n) {
    const int d = int(a.attr<int64_t>("dim")) - 1, rank = a.in[0].rank() - (kind == kFromReal ? 0 : 1);
    for (int i = 0; i < d; ++i) outer_ *= a.in[0].size(i);
    for (int i = d + 1; i < rank; ++i) inner_ *= a.in[0].size(i);
    from_ = {a.in[0].data, a.in[0].size(d), kind == kFromReal ? 1 : 2, 0};
    to_ = {a.out[0].data, a.out[0].size(d), kind == kToReal ? 1 : 2, 0};
  }

  // out = the transform, with factors before and after it.
  void run(bool inverse, const Factors& before, const Factors& after) const {
    if (n_ == 1) return copy(from_, to_, {before.ends * after.ends, 1, false});
    const bool turned = outer_ > 1 && inner_ > 1;
    Points from = from_, to = to_;
    std::optional<Scratch> from_copy, to_copy;
    if (turned || !before.none() || !is_aligned(from)) {
      from = place(from, turned, from_copy);
      copy(from_, from, before);
    }
    if (turned || !is_aligned(to)) to = place(to, turned, to_copy);
    const bool apart = !turned && inner_ > 1;
    execute(stream_,
            {type_of(kind_, dtype_), n_, apart ? inner_ : 1, apart ? 1 : from.points, apart ? 1 : to.points,
             outer_ * inner_},
            inverse, from.data, to.data);
    if (to_copy || !after.none()) copy(to, to_, after);
  }

 private:
  // cuFFT reads and writes pairs.
  bool is_aligned(const Points& p) const {
    return reinterpret_cast<uintptr_t>(p.data) % uintptr_t(2 * size_of(dtype_)) == 0;
  }
  Points place(Points p, bool last, std::optional<Scratch>& memory) const {
    memory.emplace(stream_, size_t(outer_ * p.points * inner_ * p.parts * size_of(dtype_)));
    return {memory->data(), p.points, p.parts, last};
  }
  void copy(const Points& from, const Points& to, const Factors& factors) const {
    kernels::FftArgs args = {};
    args.from = from.data, args.to = to.data;
    args.points = to.points, args.inner = inner_, args.n = n_;
    args.count = outer_ * to.points * inner_;
    args.ends = factors.ends, args.inside = factors.inside, args.real_ends = factors.real_ends;
    args.from_parts = from.parts, args.to_parts = to.parts;
    args.from_last = from.last, args.to_last = to.last;
    const std::string types = fmt::format("using T = {};\n", type_text(dtype_));
    launch(stream_, family_kernel(stream_, "fft", types, "fft_points"), args.count, &args);
  }

  Stream& stream_;
  Kind kind_;
  DType dtype_;
  int64_t n_, outer_ = 1, inner_ = 1;
  Points from_, to_;
};

int64_t size_along(const KernelArgs& a, const View& v) { return v.size(int(a.attr<int64_t>("dim")) - 1); }

void fft_complex(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const double scale = a.attr<double>("scale");
  Call(a, kComplex, size_along(a, a.in[0])).run(a.attr<bool>("inverse"), {}, {scale, scale});
}

void fft_real(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const double scale = a.attr<double>("scale");
  Call(a, kFromReal, size_along(a, a.in[0])).run(false, {}, {scale, a.attr<bool>("doubled") ? 2 * scale : scale});
}

// cuFFT takes the spectrum of which x is one half, and overwrites it.
void fft_half(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const double scale = a.attr<double>("scale");
  Call(a, kToReal, a.attr<int64_t>("n")).run(true, {scale, a.attr<bool>("doubled") ? scale : scale / 2, true}, {});
}

}  // namespace

std::vector<KernelRow> fft_rows() {
  return {{"fft_complex", fft_complex}, {"fft_real", fft_real}, {"fft_half", fft_half}};
}

}  // namespace pg::cuda
