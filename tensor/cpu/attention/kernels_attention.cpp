#include <algorithm>
#include <memory>
#include <type_traits>

#include "tensor/cpu/attention/attention.h"
#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::Head;
using cpu::Matrix;

// Less work than this does not repay waking a thread.
constexpr int64_t kMacsPerTask = 1 << 20;
// Backward passes of fewer heads than this divide the keys of a head. The number does not depend on that of threads, so
// that the bits do not either.
constexpr int64_t kShares = 16;

// The elements of a view in row-major order, copied where `dense` is false.
template <class T>
class Elements {
 public:
  Elements(const View& v, bool dense) : data_(v.as<T>()) {
    if (dense) return;
    copy_.resize(size_t(v.numel()));
    cpu::copy_strided(v, copy_.data());
    data_ = copy_.data();
  }
  explicit Elements(const View& v) : Elements(v, is_contiguous(v.shape(), *v.strides)) {}
  const T* data() const { return data_; }
  bool copied() const { return !copy_.empty(); }

 private:
  cpu::WorkVector<T> copy_;
  const T* data_;
};

// The matrices in the last two dims of a view, for each index of a batch that its leading dims broadcast to. Copies a
// view whose rows have gaps.
template <class T>
class Matrices {
 public:
  Matrices(const View& v, const Dims& batch)
      : view_(v), batch_(batch), elements_(v, v.strides->back() == 1 || v.shape().back() <= 1) {
    const Dims strides = elements_.copied() ? contiguous_strides(v.shape()) : *v.strides;
    const int r = v.rank();
    row_ = strides[r - 2];
    Dims leading, leading_strides;
    for (int i = 0; i + 2 < r; ++i) leading.push_back(v.size(i)), leading_strides.push_back(strides[i]);
    steps_ = broadcast_strides(leading, leading_strides, batch);
  }
  int64_t rows() const { return view_.size(view_.rank() - 2); }
  int64_t columns() const { return view_.size(view_.rank() - 1); }
  Matrix<T> at(int64_t index) const {
    int64_t offset = 0;
    for (int i = batch_.size() - 1; i >= 0; index /= batch_[i--]) offset += index % batch_[i] * steps_[i];
    return {elements_.data() + offset, row_};
  }

 private:
  const View& view_;
  const Dims& batch_;
  Elements<T> elements_;
  Dims steps_;
  int64_t row_ = 0;
};

// The mask of each head. Its last two dims broadcast too.
class Masks {
 public:
  Masks(const View& v, const Dims& batch, int64_t queries, int64_t keys) : view_(v), scores_(batch) {
    if (!v) return;
    scores_.push_back(queries);
    scores_.push_back(keys);
    steps_ = broadcast_strides(v.shape(), *v.strides, scores_);
  }
  cpu::Mask at(int64_t index) const {
    if (!view_) return {};
    const int last = scores_.size() - 1;
    int64_t offset = 0;
    for (int i = last - 2; i >= 0; index /= scores_[i--]) offset += index % scores_[i] * steps_[i];
    const void* data = view_.as<char>() + offset * size_of(view_.dtype());
    return {data, view_.dtype() != DType::kBool, steps_[last - 1], steps_[last]};
  }

 private:
  const View& view_;
  Dims scores_, steps_;
};

Dims without_last(const Dims& shape, int count) {
  Dims out;
  for (int i = 0; i + count < shape.size(); ++i) out.push_back(shape[i]);
  return out;
}

// The heads of a call with query, key and value as inputs 1 to 3.
template <class E>
struct Heads {
  Dims batch;
  Matrices<E> query, key, value;
  Masks mask;
  bool causal;
  cpu::SumOf<E> scale;
  cpu::Drops drops;

  Heads(const KernelArgs& a, const View& mask_view)
      : batch(without_last(a.out[0].shape(), 2)),
        query(a.in[0], batch),
        key(a.in[1], batch),
        value(a.in[2], batch),
        mask(mask_view, batch, query.rows(), key.rows()),
        causal(a.attr<bool>("is_causal")),
        scale(cpu::SumOf<E>(a.attr<double>("scale"))),
        drops{a.attr<double>("dropout_p"), a.attr<RandomKey>("generator")} {}
  int64_t count() const { return numel(batch); }
  Head<E> at(int64_t index) const {
    const int64_t weights = query.rows() * key.rows();
    return {query.rows(),
            key.rows(),
            query.columns(),
            value.columns(),
            query.at(index),
            key.at(index),
            value.at(index),
            mask.at(index),
            causal,
            scale,
            {drops.share, drops.key, index * weights}};
  }
  int64_t macs() const {  // of a head
    return times(times(query.rows(), key.rows()), plus(query.columns(), value.columns()));
  }
};

template <class E>
void attention_forward(const KernelArgs& a) {
  using T = cpu::SumOf<E>;
  const Heads<E> heads(a, a.in[3]);
  E* const out = a.out[0].as<E>();
  T *const top = a.out[1].as<T>(), *const log_sum = a.out[2].as<T>();
  const int64_t queries = heads.query.rows(), width = heads.value.columns();
  const int64_t blocks = (queries + cpu::kQueryBlock - 1) / cpu::kQueryBlock;
  const int64_t grain = std::max<int64_t>(1, kMacsPerTask * blocks / std::max<int64_t>(heads.macs(), 1));
  parallel_for(heads.count() * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / blocks, first = i % blocks * cpu::kQueryBlock;
      const int64_t at = head * queries + first, count = std::min(cpu::kQueryBlock, queries - first);
      const cpu::Normalizers<T> normalizers{top + at, log_sum + at};
      if constexpr (std::is_same_v<E, T>) {
        cpu::attend(heads.at(head), first, count, out + at * width, normalizers);
      } else {
        const cpu::Scratch<T> rows(count * width);
        cpu::attend(heads.at(head), first, count, rows.get(), normalizers);
        cpu::from_float(rows.get(), out + at * width, count * width);
      }
    }
  });
}

// dq = scale times the sum of the shares of a head, each dense and `size` elements long: `first`, which may be dq, and
// the further ones.
template <class T, class E>
void sum_shares(int64_t size, int64_t shares, const T* first, const T* further, T scale, E* dq) {
  for (int64_t i = 0; i < size; ++i) {
    T sum = first[i];
    for (int64_t s = 1; s < shares; ++s) sum += further[(s - 1) * size + i];
    dq[i] = E(sum * scale);
  }
}

template <class E>
void attention_backward(const KernelArgs& a) {
  using T = cpu::SumOf<E>;
  const Heads<E> heads(a, a.in[7]);
  const Elements<T> top(a.in[3]), log_sum(a.in[4]), delta(a.in[5]);
  const Matrices<E> dy(a.in[6], heads.batch);
  const int64_t queries = heads.query.rows(), keys = heads.key.rows();
  const int64_t width = heads.query.columns(), value_width = heads.value.columns();
  E *const dq = a.out[0].as<E>(), *const dk = a.out[1].as<E>(), *const dv = a.out[2].as<E>();
  const int64_t blocks = std::max<int64_t>(1, (keys + cpu::kKeyBlock - 1) / cpu::kKeyBlock);
  const int64_t shares = std::clamp<int64_t>(kShares / std::max<int64_t>(heads.count(), 1), 1, blocks);
  const int64_t size = queries * width;
  // The first share of a head is in the result if that holds sums.
  cpu::WorkVector<T> first_memory(std::is_same_v<E, T> ? 0 : size_t(heads.count() * size));
  cpu::WorkVector<T> further(size_t(heads.count() * (shares - 1) * size), T(0));
  T* firsts = first_memory.data();
  if constexpr (std::is_same_v<E, T>) firsts = dq;
  cpu::zero_bytes(firsts, heads.count() * size * int64_t(sizeof(T)));
  const int64_t grain = std::max<int64_t>(1, kMacsPerTask * shares / std::max<int64_t>(times(3, heads.macs()), 1));
  parallel_for(heads.count() * shares, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / shares, share = i % shares;
      const int64_t first = blocks * share / shares * cpu::kKeyBlock;
      const int64_t last = std::min(keys, blocks * (share + 1) / shares * cpu::kKeyBlock);
      T* const share_dq = share == 0 ? firsts + head * size : further.data() + (head * (shares - 1) + share - 1) * size;
      const cpu::Normalizers<const T> normalizers{top.data() + head * queries, log_sum.data() + head * queries};
      cpu::attend_backward(heads.at(head), dy.at(head), normalizers, delta.data() + head * queries, first, last,
                           share_dq, dk + (head * keys + first) * width, dv + (head * keys + first) * value_width);
    }
  });
  parallel_for(heads.count(), kMacsPerTask / std::max<int64_t>(size * shares, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h)
      sum_shares(size, shares, firsts + h * size, further.data() + h * (shares - 1) * size, heads.scale, dq + h * size);
  });
}

// Calls the instance for the operands. Halves that the CPU does not multiply are widened, and so are masks of halves.
template <KernelFn kFloat, KernelFn kDouble, KernelFn kBrain>
void run(const KernelArgs& a, size_t mask) {
  if (a.in[0].dtype() == DType::kFloat64) return kDouble(a);
  if (a.in[0].dtype() == DType::kBFloat16 && cpu::multiplies_bf16()) return cpu::run_widened_input(a, mask, kBrain);
  cpu::run_widened(a, kFloat);
}

}  // namespace

void add_attention_kernels(Registry& r) {
  const auto forward = [](const KernelArgs& a) {
    run<attention_forward<float>, attention_forward<double>, attention_forward<BFloat16>>(a, 3);
  };
  const auto backward = [](const KernelArgs& a) {
    run<attention_backward<float>, attention_backward<double>, attention_backward<BFloat16>>(a, 7);
  };
  static const KernelRow kRows[] = {
      {"attention_rows", forward, kStridedInputs},
      {"attention_grads", backward, kStridedInputs},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
