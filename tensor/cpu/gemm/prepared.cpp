#include "tensor/cpu/gemm/prepared.h"

#include <algorithm>

#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/half.h"

namespace pg::cpu {
namespace {

// A linear layer (`trans_b`) or a product.
class PreparedProduct final : public PreparedKernel {
 public:
  PreparedProduct(bool trans_b, int64_t m, int64_t n, int64_t k, bool packs, const Finish& finish)
      : trans_b_(trans_b), m_(m), n_(n), k_(k), finish_(finish) {
    if (!packs || !right_packs(trans_b, m, n, k)) return;
    packed_input = 1;
    packed_bytes = size_t(packed_size(n, k)) * sizeof(float);
  }
  void run(std::span<const View> in, std::span<const View> out, void*, const void* packed) const override {
    const float *a = in[0].as<float>(), *b = in[1].as<float>(), *right = static_cast<const float*>(packed);
    float* c = out[0].as<float>();
    if (!trans_b_) return gemm_packed(m_, n_, k_, a, b, c, right);
    linear(m_, n_, k_, a, b, in[2] ? in[2].as<float>() : nullptr, finish_.relu(), c, right);
    if (!finish_.relu()) finish_(out);
  }
  void pack(const View& b, void* packed) const override {
    pack_right(trans_b_, n_, k_, b.as<float>(), static_cast<float*>(packed));
  }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const PreparedProduct*>(&other);
    return o && packed_bytes > 0 && o->packed_bytes > 0 && trans_b_ == o->trans_b_ && n_ == o->n_ && k_ == o->k_;
  }

 private:
  const bool trans_b_;
  int64_t m_, n_, k_;
  Finish finish_;
};

}  // namespace

Finish::Finish(const KernelArgs& args) {
  if (args.op.attr_index("activation") < 0) return;
  relu_ = asks_relu(args);
  if (!relu_) activation_.emplace(args);
}

void Finish::operator()(std::span<const View> out) const {
  if (relu_) return rectify(out[0].numel(), out[0].as<float>());
  if (activation_) (*activation_)(out[0]);
}

void Finish::operator()(int64_t n, float* y) const {
  if (relu_) return rectify(n, y);
  if (activation_) (*activation_)(n, y);
}

void Finish::operator()(int64_t n, BFloat16* y) const {
  if (!relu_ && !activation_) return;
  constexpr int64_t kBlock = 1024;
  float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    to_float(y + i, block, count);
    (*this)(count, block);
    from_float(block, y + i, count);
  }
}

std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool packs,
                                                     const Finish& finish) {
  return std::make_unique<PreparedProduct>(true, m, n, k, packs, finish);
}

std::unique_ptr<const PreparedKernel> prepare_product(int64_t m, int64_t n, int64_t k, const Finish& finish) {
  if (!right_packs(false, m, n, k)) return nullptr;
  return std::make_unique<PreparedProduct>(false, m, n, k, true, finish);
}

}  // namespace pg::cpu
