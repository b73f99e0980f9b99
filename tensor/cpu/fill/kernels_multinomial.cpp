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
      : a_(a), n_(a.attr<int64_t>("n")), base_(a.attr<int64_t>("index_base")), w_(size_t(choices)), keys_(w_.size()) {}

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
      sum = add_up(&w_[size_t(begin)], end - begin, sum, &keys_[size_t(begin)]);
    });
    size_t last = w_.size() - 1;
    while (last > 0 && w_[last] == 0) --last;
    int64_t* const out = a_.out[0].as<int64_t>() + row * n_;
    over_bits(a_.attr<RandomKey>("generator"), row * n_, n_, [&](int64_t begin, int64_t end, const uint64_t* random) {
      for (int64_t k = begin; k < end; ++k) {
        const auto at = std::upper_bound(keys_.begin(), keys_.end(), unit(random[k - begin]) * sum);
        out[k] = int64_t(std::min(size_t(at - keys_.begin()), last)) + base_;
      }
    });
  }

  // Takes the n smallest of -log(u) / w (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006).
  void draw_without_replacement(int64_t row) {
    const int64_t choices = int64_t(w_.size());
    over_bits(a_.attr<RandomKey>("generator"), row * choices, choices,
              [&](int64_t begin, int64_t end, const uint64_t* random) {
                for (int64_t i = begin; i < end; ++i) {
                  const double w = w_[size_t(i)];
                  keys_[size_t(i)] = w > 0 ? -std::log1p(-unit(random[i - begin])) / w : 0;
                }
              });
    WorkVector<std::pair<double, int64_t>> items;
    items.reserve(size_t(nonzero_));
    Poller poll;
    for (size_t i = 0; i < w_.size(); ++i, poll())
      if (w_[i] > 0) items.emplace_back(keys_[i], int64_t(i));
    const std::less<std::pair<double, int64_t>> less;
    std::partial_sort(items.begin(), items.begin() + n_, items.end(), PolledOrder(less, poll));
    for (int64_t k = 0; k < n_; ++k) a_.out[0].as<int64_t>()[row * n_ + k] = items[size_t(k)].second + base_;
  }

 private:
  const KernelArgs& a_;
  const int64_t n_, base_;
  WorkVector<double> w_, keys_;
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
