#include "tensor/cpu/conv/conv_choice.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tensor/buffer.h"
#include "tensor/cpu/conv/conv_last.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_product.h"
#include "tensor/cpu/conv/conv_unfolded.h"
#include "tensor/cpu/conv/winograd.h"
#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/isa.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/error.h"
#include "tensor/memory_account.h"
#include "tensor/runtime.h"
#include "tensor/settings.h"

namespace pg::cpu {
namespace {

// Noise of measurements rarely changes the choice.
constexpr double kWorthwhile = 1.1;
constexpr double kWorthwhileProduct = 1.05;  // a product has no other rounding errors and takes no more memory
// Work of about 100 microseconds. Less is not worth a measurement, unless the library reorders images beside it.
constexpr int64_t kFewestMacs = 6 << 20, kFewestReordered = 1 << 20;
constexpr int64_t kFewestChannels = 16;  // those of a vector
// Winograd's algorithm has to save at least this share of the multiplications, because it has transforms too.
constexpr double kMostWork = 0.7;
// Up to this size the weights of the larger tile stay in the second-level cache or near it, and it is the faster one.
constexpr size_t kLargeWeights = 4 << 20;
// Each large weight is read once for this many tiles or more, because memory is slow.
constexpr int64_t kFewestTiles = 12;
// A gradient of weights takes this memory at most beside its result.
constexpr size_t kMostSums = 6 << 20;
// From this number of larger tiles on, more images do not change what is faster.
constexpr int64_t kEnoughTiles = 128;
constexpr size_t kMostRemembered = 4096;  // shapes; later ones are not measured

using Setting = std::optional<int>;  // the tile that PERIGEE_CONV asks for; nothing: measured

// Returns false where the variable has an unknown value.
bool read_setting(Setting* out) {
  const char* text = setting("PERIGEE_CONV");
  const std::string_view name = text ? text : "";
  if (name == "direct") *out = 0;
  if (name == "winograd") *out = 4;
  return name.empty() || name == "measured" || *out;
}

const Setting& asked() {
  static const Setting chosen = [] {
    Setting s;
    read_setting(&s);
    return s;
  }();
  return chosen;
}

struct Key {
  ConvShape shape;
  int64_t part;  // a ConvPart, or kProduct or kWidened + a ConvPart, or kProductLast

  bool operator<(const Key& other) const { return std::memcmp(this, &other, sizeof(Key)) < 0; }
};

constexpr int64_t kProduct = 3, kProductLast = 6, kWidened = 7;

// Shapes with about as many images share a choice.
Key key_of(ConvShape s, int64_t part) {
  const int64_t tiles = ((s.out[1] + 3) / 4) * ((s.out[2] + 3) / 4);
  const auto enough = int64_t(std::bit_ceil(uint64_t((kEnoughTiles + tiles - 1) / tiles)));
  s.n = std::min(int64_t(std::bit_ceil(uint64_t(s.n))), enough);
  return {s, part};
}

// Returns the time of this thread in seconds. Neither other processes nor the pauses of a job count.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Returns the least time of a few runs.
template <class F>
double measured(const F& run) {
  constexpr double kEnough = 0.005;
  constexpr int kMostRuns = 6;
  run();  // the first one reads cold memory
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int i = 0; i < kMostRuns && total < kEnough; ++i) {
    const double start = thread_seconds();
    run();
    const double time = thread_seconds() - start;
    best = std::min(best, time), total += time;
  }
  return best;
}

// The runtime of trials. Its memory is not that of tensors, so no limit counts it and a trial leaves nothing behind. A
// trial has few images, so that its memory is bounded.
class TrialRuntime {
 public:
  TrialRuntime() : scope_(runtime()) {}
  ~TrialRuntime() { runtime().memory().flush(); }
  static Runtime& runtime() {
    static const auto* const one_thread = new Ref<Runtime>([] {  // kernels may run in handlers of exit()
      RuntimeOptions options;
      options.threads = 1;
      return Runtime::create(options);
    }());
    return **one_thread;
  }

 private:
  const ScopedRuntime scope_;
  const ScopedAccount uncounted_{nullptr};
};

class TrialArray {
 public:
  explicit TrialArray(size_t bytes)
      : size_(MemoryPool::class_size(std::max<size_t>(bytes, 1))), data_(TrialRuntime::runtime().memory().take(size_)) {
    if (!data_) throw std::bad_alloc();
  }
  // An argument. Its numbers are neither zero nor denormal.
  explicit TrialArray(int64_t size) : TrialArray(size_t(size) * sizeof(float)) {
    std::fill_n(get(), count_ = size, 0.0625f);
  }
  ~TrialArray() { TrialRuntime::runtime().memory().give(data_, size_); }
  TrialArray(const TrialArray&) = delete;
  TrialArray& operator=(const TrialArray&) = delete;
  float* get() const { return static_cast<float*>(data_); }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
  const size_t size_;
  void* const data_;
};

// One part of a convolution on memory of its own. Forward passes have the channels last and packed weights, as plans
// run them; gradients have the channels first.
class Trial {
 public:
  Trial(const ConvShape& s, ConvPart part)
      : s_(s), part_(part), x_(s.n * s.ic * s.in_plane()), w_(s.oc * s.ic * s.taps()), y_(s.n * s.oc * s.out_plane()) {}

  double direct() const { return part_ == ConvPart::kForward ? direct_last() : direct_first(); }

  // The time in bfloat16. The arrays hold more than it needs, and half of its elements are 0.
  double narrow() const {
    if (part_ == ConvPart::kForward) return direct_last(DType::kBFloat16);
    const auto *x = as_narrow(x_), *w = as_narrow(w_), *y = as_narrow(y_);
    const TrialArray result(std::max(x_.count(), w_.count()));
    auto* const to = reinterpret_cast<BFloat16*>(result.get());
    bool ok = true;
    const double time = measured([&] {
      if (part_ == ConvPart::kInputGradient)
        ok = ok && primitive_backward_data(s_, y, w, to);
      else if (prefers_unfolded(s_))
        unfolded_backward_weights(s_, false, x, y, to);
      else
        ok = ok && primitive_backward_weights(s_, x, y, result.get());
    });
    return ok ? time : 0;
  }

  // The time of the conversions of all arrays.
  double widening() const {
    return measured([&] {
      for (const TrialArray* array : {&x_, &w_, &y_}) {
        const TrialArray wide(size_t(array->count()) * sizeof(float));
        convert(DType::kBFloat16, array->get(), DType::kFloat32, wide.get(), array->count());
      }
    });
  }

  double direct_first() const {
    return channels_first(primitive_forward<float>, primitive_backward_data<float>, primitive_backward_weights<float>);
  }

  double winograd(int tile) const {
    const bool forward = part_ == ConvPart::kForward;
    const Winograd conv(s_, part_, tile, forward ? ImageLayout::kChannelsLast : ImageLayout::kChannelsFirst);
    if (part_ == ConvPart::kInputGradient)
      return measured([&] { conv.run(y_.get(), w_.get(), nullptr, nullptr, false, x_.get()); });
    if (part_ == ConvPart::kWeightGradient)
      return measured([&] { conv.run(x_.get(), y_.get(), nullptr, nullptr, false, w_.get()); });
    const TrialArray packed(conv.packed_bytes());
    conv.pack(w_.get(), packed.get());
    return measured([&] { conv.run(x_.get(), w_.get(), packed.get(), nullptr, false, y_.get()); });
  }

  double direct_last(DType type = DType::kFloat32) const {
    const auto conv = ConvLast::make(type, s_, false);
    if (!conv) return 0;
    const TrialArray packed(conv->packed_bytes()), scratch(conv->scratch_bytes());
    if (conv->packed_bytes()) conv->pack(w_.get(), packed.get());
    const float* const weights = conv->packed_bytes() ? packed.get() : nullptr;
    const auto no_finish = [](int64_t, void*) {};
    return measured([&] { conv->run(x_.get(), w_.get(), weights, nullptr, no_finish, y_.get(), scratch.get()); });
  }

  double product_first() const {
    return channels_first(pointwise_forward, pointwise_backward_data, pointwise_backward_weights);
  }

  double product_last() const {
    const int64_t rows = s_.n * s_.out_plane();
    const TrialArray packed(packed_size(s_.oc, s_.ic) * int64_t(sizeof(float)));
    pack_right(true, s_.oc, s_.ic, w_.get(), packed.get());
    return measured(
        [&] { linear<float>(rows, s_.oc, s_.ic, x_.get(), w_.get(), nullptr, false, y_.get(), packed.get()); });
  }

 private:
  static const BFloat16* as_narrow(const TrialArray& a) { return reinterpret_cast<const BFloat16*>(a.get()); }

  // The time of this part by functions with the arguments of conv.h; 0 if one returns false.
  template <class Forward, class Data, class Weights>
  double channels_first(Forward forward, Data data, Weights weights) const {
    bool ok = true;
    const auto call = [&](auto f, auto... args) {
      if constexpr (std::is_void_v<decltype(f(args...))>)
        f(args...);
      else
        ok = ok && f(args...);
    };
    const double time = measured([&] {
      if (part_ == ConvPart::kForward) return call(forward, s_, x_.get(), w_.get(), nullptr, false, y_.get());
      if (part_ == ConvPart::kInputGradient) return call(data, s_, y_.get(), w_.get(), x_.get());
      call(weights, s_, x_.get(), y_.get(), w_.get());
    });
    return ok ? time : 0;
  }

  const ConvShape s_;
  const ConvPart part_;
  const TrialArray x_, w_, y_;
};

bool may_pay(const ConvShape& s, ConvPart part, int tile) {
  const Winograd conv(s, part, tile, ImageLayout::kChannelsFirst);
  if (conv.packed_bytes() > kLargeWeights && conv.tiles() < kFewestTiles) return false;
  if (part == ConvPart::kWeightGradient && conv.sums_bytes() > kMostSums) return false;
  return double(conv.macs()) < kMostWork * double(s.macs());
}

// The smaller tile needs half of the memory of the larger one for weights.
int fastest(const ConvShape& s, ConvPart part) {
  const TrialRuntime runtime;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const Trial trial(s, part);
  const double direct = trial.direct();
  if (direct == 0) return 0;
  const double large = may_pay(s, part, 4) ? trial.winograd(4) : kNever;
  const bool sure =
      large * kWorthwhile < direct && Winograd(s, part, 4, ImageLayout::kChannelsFirst).packed_bytes() <= kLargeWeights;
  const double small = !sure && may_pay(s, part, 2) ? trial.winograd(2) : kNever;
  if (large * kWorthwhile < std::min(direct, small)) return 4;
  return small * kWorthwhile < direct ? 2 : 0;
}

std::mutex lock;
std::map<Key, int>& remembered() {
  static auto* const choices = new std::map<Key, int>;
  return *choices;
}

// Returns what `measure` returned at its first call for the key; `unknown` where it could not.
template <class F>
int choice(const Key& key, int unknown, const F& measure) {
  {
    const std::lock_guard hold(lock);
    const auto& choices = remembered();
    if (const auto found = choices.find(key); found != choices.end()) return found->second;
    if (choices.size() >= kMostRemembered) return unknown;
  }
  int chosen = unknown;
  try {
    chosen = measure(key.shape);  // without the lock, because kernels poll
  } catch (const std::bad_alloc&) {
    return unknown;
  } catch (const OutOfMemory&) {
    if (allocation_failed()) throw;  // a test requested the failure
    return unknown;
  }
  const std::lock_guard hold(lock);
  return remembered().emplace(key, chosen).first->second;
}

bool worth_measuring(const ConvShape& s, int64_t fewest_macs = kFewestMacs) {
  return isa() >= Isa::kAvx2 && s.macs() >= fewest_macs && std::min(s.ic, s.oc) >= kFewestChannels;
}

}  // namespace

int winograd_tile(const ConvShape& s, ConvPart part) {
  if (!Winograd::fits(s)) return 0;
  if (asked()) return *asked();
  if (!worth_measuring(s) || (!may_pay(s, part, 2) && !may_pay(s, part, 4))) return 0;
  return choice(key_of(s, int64_t(part)), 0, [&](const ConvShape& shape) { return fastest(shape, part); });
}

bool product_pays(const ConvShape& s, ConvPart part, ImageLayout layout) {
  constexpr int64_t kFewestRows = 16;  // fewer rows are dot products, which read the weights as they are stored
  const bool last = layout == ImageLayout::kChannelsLast;
  if (!s.is_pointwise() || s.n * s.out_plane() < kFewestRows || asked()) return false;
  if (!worth_measuring(s, last ? kFewestMacs : kFewestReordered)) return false;
  return choice(key_of(s, last ? kProductLast : kProduct + int64_t(part)), 0, [&](const ConvShape& shape) {
    const TrialRuntime runtime;
    const Trial trial(shape, part);
    const double direct = last ? trial.direct_last() : trial.direct_first();
    return int(direct == 0 || (last ? trial.product_last() : trial.product_first()) * kWorthwhileProduct < direct);
  });
}

bool widening_pays(const ConvShape& s, ConvPart part) {
  if (bf16_unit() == Bf16Unit::kTiles) return false;
  const int tile = winograd_tile(s, part);
  if (tile == 0 || asked()) return tile > 0;
  return choice(key_of(s, kWidened + int64_t(part)), 0, [&](const ConvShape& shape) {
    const TrialRuntime runtime;
    const Trial trial(shape, part);
    const double narrow = trial.narrow();
    return int(narrow == 0 || (trial.winograd(tile) + trial.widening()) * kWorthwhile < narrow);
  });
}

std::string conv_choice_error() {
  Setting s;
  return read_setting(&s) ? "" : wrong_setting("PERIGEE_CONV", "measured, direct or winograd");
}

}  // namespace pg::cpu
