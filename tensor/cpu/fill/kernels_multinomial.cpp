// The kernel of multinomial.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tensor/cpu/fill/bits.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/order.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

// The loops over weights are no lambdas: their sums would be kept in memory.
struct Counts {
  int64_t valid = 0, nonzero = 0;  // finite and at least 0; above 0
};
[[gnu::noinline]] Counts count_weights(const double* w, int64_t n) {
  int64_t valid = 0, nonzero = 0;
  for (int64_t i = 0; i < n; ++i) {
    valid += int64_t(w[i] >= 0) & int64_t(w[i] <= std::numeric_limits<double>::max());
    nonzero += w[i] > 0;
  }
  return {valid, nonzero};
}
// Sets `to` to the running sums from `sum` on. Returns the last.
[[gnu::noinline]] double add_up(const double* w, int64_t n, double sum, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = sum += w[i];
  return sum;
}

// Draws from rows of weights. Each thread has its own.
class Weights {
 public:
  Weights(const KernelArgs& a, int64_t choices)
      : a_(a),
        n_(a.attr<int64_t>("n")),
        base_(a.attr<int64_t>("index_base")),
        w_(size_t(choices)),
        sums_(a.attr<bool>("replacement") ? w_.size() : 0) {}

  // Reads a row in double precision. Returns whether the weights are finite and at least 0, and enough above 0.
  bool read(int64_t row, int64_t fewest) {
    const View& p = a_.in[0];
    const int64_t choices = int64_t(w_.size());
    cpu::convert(p.dtype(), p.as<char>() + row * choices * size_of(p.dtype()), DType::kFloat64, w_.data(), choices);
    nonzero_ = 0;
    int64_t valid = 0;
    in_polled_blocks(choices, 1 << 16, [&](int64_t begin, int64_t end) {
      const Counts counts = count_weights(&w_[size_t(begin)], end - begin);
      valid += counts.valid;
      nonzero_ += counts.nonzero;
    });
    return valid == choices && nonzero_ >= fewest;
  }

  [[noreturn]] void refuse(int64_t fewest) const {
    for (size_t i = 0; i < w_.size(); ++i)
      if (const double v = w_[i]; !(v >= 0) || std::isinf(v))
        bad_argument("multinomial", "p", "finite weights of at least 0", fmt::format("{} at element {}", v, i + 1));
    bad_argument("multinomial", "p", fmt::format("at least {} weights above 0 in a row", fewest),
                 std::to_string(nonzero_));
  }

  // Inverts the cumulative sums of the weights.
  void draw_with_replacement(int64_t row) {
    double sum = 0;
    in_polled_blocks(int64_t(w_.size()), 1 << 16, [&](int64_t begin, int64_t end) {
      sum = add_up(&w_[size_t(begin)], end - begin, sum, &sums_[size_t(begin)]);
    });
    size_t last = w_.size() - 1;
    while (last > 0 && w_[last] == 0) --last;
    int64_t* const out = a_.out[0].as<int64_t>() + row * n_;
    over_bits(a_.attr<RandomKey>("generator"), row * n_, n_, [&](int64_t begin, int64_t end, const uint64_t* random) {
      for (int64_t k = begin; k < end; ++k) {
        const auto at = std::upper_bound(sums_.begin(), sums_.end(), unit(random[k - begin]) * sum);
        out[k] = int64_t(std::min(size_t(at - sums_.begin()), last)) + base_;
      }
    });
  }

  // Takes the n smallest of -log(1 - u) / w (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006).
  // As -log(1 - u) is at least u, most elements need no logarithm once some keys are known.
  void draw_without_replacement(int64_t row) {
    constexpr double kRounding = 1 + 1e-9;  // more than what the keys and the bound are rounded by
    constexpr int64_t kSpare = 16;
    const int64_t choices = int64_t(w_.size());
    double bound = std::numeric_limits<double>::infinity();  // on the keys of further elements
    Poller poll;
    const std::less<Item> less;
    const PolledOrder order(less, poll);
    const auto drop_others = [&] {
      std::nth_element(items_.begin(), items_.begin() + (n_ - 1), items_.end(), order);
      items_.resize(size_t(n_));
      bound = items_.back().first * kRounding;
    };
    items_.clear();
    in_polled_blocks(choices, kPart, [&](int64_t begin, int64_t end) {
      uint64_t random[kPart];
      write_bits(a_.attr<RandomKey>("generator"), row * choices + begin, end - begin, random);
      for (int64_t i = begin; i < end; ++i) {
        const double w = w_[size_t(i)], u = unit(random[i - begin]);
        if (!(w > 0) || u > bound * w) continue;
        items_.emplace_back(-std::log1p(-u) / w, i);
        if (int64_t(items_.size()) >= 2 * n_ + kSpare) drop_others();
      }
    });
    if (int64_t(items_.size()) > n_) drop_others();
    std::sort(items_.begin(), items_.end(), order);
    for (int64_t k = 0; k < n_; ++k) a_.out[0].as<int64_t>()[row * n_ + k] = items_[size_t(k)].second + base_;
  }

 private:
  const KernelArgs& a_;
  const int64_t n_, base_;
  using Item = std::pair<double, int64_t>;  // key and element
  WorkVector<double> w_, sums_;
  WorkVector<Item> items_;  // those of a row that may be among its first
  int64_t nonzero_ = 0;
};

void multinomial_kernel(const KernelArgs& a) {
  const View& p = a.in[0];
  if (a.out[0].numel() == 0) return;
  const bool replacement = a.attr<bool>("replacement");
  const int64_t choices = p.size(p.rank() - 1), rows = p.numel() / choices;
  const int64_t fewest = replacement ? 1 : a.attr<int64_t>("n");
  const int64_t work =
      replacement ? 2 * choices + 16 * a.attr<int64_t>("n") : 16 * choices;  // elements that take about 1 ns
  std::atomic<bool> fine{true};
  parallel_for(rows, 10'000 / work + 1, [&](int64_t begin, int64_t end) {
    Weights weights(a, choices);
    for (int64_t row = begin; row < end; ++row) {
      if (!weights.read(row, fewest)) return void(fine = false);
      replacement ? weights.draw_with_replacement(row) : weights.draw_without_replacement(row);
    }
  });
  if (fine) return;
  Weights weights(a, choices);
  for (int64_t row = 0; row < rows; ++row)
    if (!weights.read(row, fewest)) weights.refuse(fewest);
}

}  // namespace

void add_multinomial_kernel(Registry& r) {
  static const KernelRow kRows[] = {{"multinomial", multinomial_kernel}};
  r.add_kernels(0, kRows);
}

}  // namespace pg
