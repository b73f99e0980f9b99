#include "tensor/cpu/gemm/prepared.h"

#include <algorithm>
#include <array>

#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

using Primitive = std::shared_ptr<const OneDnnPrepared>;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A linear layer, cut by its grid. Each column block has weights of its own; every row block reads them.
class PreparedGrid final : public PreparedKernel {
 public:
  PreparedGrid(const ProductGrid& grid, int64_t m, int64_t n, int64_t k, bool bias, bool packs, const Finish& finish)
      : grid_(grid), m_(m), n_(n), k_(k), finish_(finish) {
    for (int64_t i = 0; i < 4; ++i) {  // the last row and the last column have blocks of their own sizes
      const int64_t rows = i / 2 ? last_rows() : grid.rows, columns = i % 2 ? last_columns() : grid.columns;
      const bool again = (i % 2 && columns == grid.columns) || (i / 2 && rows == grid.rows);
      sizes_[size_t(i)] = again ? sizes_[size_t(i % 2 && columns == grid.columns ? i - 1 : i - 2)]
                                : Primitive(onednn_prepare_linear({rows, columns, k, bias}, packs));
      if (!sizes_[size_t(i)]) return;
      const size_t result = columns < n ? aligned(size_t(rows * columns) * sizeof(float)) : 0;
      block_bytes_ = std::max(block_bytes_, result + aligned(sizes_[size_t(i)]->scratch_bytes));
    }
    scratch_bytes = block_bytes_ * size_t(grid.count());
    column_bytes_ = aligned(sizes_[0]->packed_bytes);
    packed_bytes = column_bytes_ * size_t(grid.column_blocks - 1) + sizes_[1]->packed_bytes;
    if (packed_bytes) packed_input = 1;
  }
  bool ready() const {
    return sizes_[3] && sizes_[0]->packs_like(*sizes_[2]) && sizes_[1]->packs_like(*sizes_[3]) &&
           bool(sizes_[0]->packed_bytes) == bool(sizes_[1]->packed_bytes);
  }

  void run(std::span<const View> in, std::span<const View> out, void* scratch, const void* packed) const override {
    const float *x = in[0].as<float>(), *w = in[1].as<float>(), *bias = in[2].as<float>();
    float* y = out[0].as<float>();
    parallel_products(grid_.count(), m_ * n_ * k_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        poll_kernel();
        const int64_t row = i / grid_.column_blocks * grid_.rows, block = i % grid_.column_blocks;
        const int64_t rows = std::min(grid_.rows, m_ - row), column = block * grid_.columns;
        const int64_t columns = std::min(grid_.columns, n_ - column);
        char* own = static_cast<char*>(scratch) + size_t(i) * block_bytes_;
        const size_t result = columns < n_ ? aligned(size_t(rows * columns) * sizeof(float)) : 0;
        float* to = result ? reinterpret_cast<float*>(own) : y + row * n_;
        primitive(rows, columns)
            .run(x + row * k_, w + column * k_,
                 packed ? static_cast<const char*>(packed) + size_t(block) * column_bytes_ : nullptr,
                 bias ? bias + column : nullptr, to, own + result);
        if (result) place_columns(rows, columns, to, n_, y + row * n_ + column);
      }
    });
    finish_(out);
  }
  void pack(const View& w, void* packed) const override {
    for (int64_t block = 0; block < grid_.column_blocks; ++block) {
      const int64_t column = block * grid_.columns;
      primitive(grid_.rows, std::min(grid_.columns, n_ - column))
          .pack(w.as<float>() + column * k_, static_cast<char*>(packed) + size_t(block) * column_bytes_);
    }
  }
  bool packs_like(const PreparedKernel& other) const override {
    const auto* o = dynamic_cast<const PreparedGrid*>(&other);
    return o && packed_bytes == o->packed_bytes && grid_.columns == o->grid_.columns && n_ == o->n_ &&
           sizes_[0]->packs_like(*o->sizes_[0]) && sizes_[1]->packs_like(*o->sizes_[1]);
  }

 private:
  int64_t last_rows() const { return m_ - (grid_.row_blocks - 1) * grid_.rows; }
  int64_t last_columns() const { return n_ - (grid_.column_blocks - 1) * grid_.columns; }
  const OneDnnPrepared& primitive(int64_t rows, int64_t columns) const {
    return *sizes_[(rows == grid_.rows ? 0 : 2) + (columns == grid_.columns ? 0 : 1)];
  }

  ProductGrid grid_;
  int64_t m_, n_, k_;
  Finish finish_;
  std::array<Primitive, 4> sizes_;  // by whether it is in the last row, and in the last column
  size_t block_bytes_ = 0;          // of scratch memory
  size_t column_bytes_ = 0;         // of the packed weights of a column block
};

// A linear layer (`trans_b`) or a product that our own kernels compute.
class OwnProduct final : public PreparedKernel {
 public:
  OwnProduct(bool trans_b, int64_t m, int64_t n, int64_t k, bool packs, const Finish& finish)
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
    const auto* o = dynamic_cast<const OwnProduct*>(&other);
    return o && packed_bytes > 0 && o->packed_bytes > 0 && trans_b_ == o->trans_b_ && n_ == o->n_ && k_ == o->k_;
  }

 private:
  const bool trans_b_;
  int64_t m_, n_, k_;
  Finish finish_;
};

}  // namespace

Finish::Finish(const KernelArgs& args)
    : op_(args.op),
      attrs_(args.attrs),
      activates_(args.op.attr_index("activation") >= 0),
      relu_(activates_ && asks_relu(args)) {}

void Finish::operator()(std::span<const View> out) const {
  if (relu_) return rectify(out[0].numel(), out[0].as<float>());
  auto no_allocation = [](int, const Dims&) -> View { return {}; };
  if (activates_) activate(KernelArgs{op_, out, out, attrs_, no_allocation});
}

std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool bias, bool packs,
                                                     const Finish& finish) {
  const auto grid = linear_grid(m, n, k, !packs);
  if (!grid) return std::make_unique<OwnProduct>(true, m, n, k, packs, finish);
  auto kernel = std::make_unique<PreparedGrid>(*grid, m, n, k, bias, packs, finish);
  if (!kernel->ready()) return nullptr;
  return kernel;
}

std::unique_ptr<const PreparedKernel> prepare_product(int64_t m, int64_t n, int64_t k, const Finish& finish) {
  if (!right_packs(false, m, n, k)) return nullptr;
  return std::make_unique<OwnProduct>(false, m, n, k, true, finish);
}

}  // namespace pg::cpu
