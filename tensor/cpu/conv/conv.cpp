// Small and float64 convolutions use the direct kernel here: it packs a block of input patches and multiplies in
// registers. Large float32 ones use oneDNN or Winograd's algorithm.
#include "tensor/cpu/conv/conv.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "tensor/cpu/conv/conv_large.h"
#include "tensor/cpu/conv/conv_plan.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_simd.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

// Less work than this does not repay waking a thread.
constexpr int64_t kMacsPerTask = 1 << 19;

bool is_empty(const ConvShape& s) { return s.n * s.oc * s.out_plane() == 0 || s.ic * s.taps() == 0; }

template <class T>
void fill_rows(const ConvShape& s, const T* bias, bool relu, T* y) {
  const int64_t plane = s.out_plane();
  for (int64_t i = 0; i < s.n * s.oc; ++i) {
    const T v = bias ? bias[i % s.oc] : T(0);
    std::fill_n(y + i * plane, plane, relu && v <= 0 ? T(0) : v);
  }
}

// Returns how many images are numbered together, so that small planes fill whole blocks.
int64_t images_per_group(const ConvShape& s, int64_t wanted_cols) {
  const int64_t plane = s.out_plane();
  return std::clamp<int64_t>(wanted_cols / plane, 1, s.n);
}

template <class T>
int64_t forward_group(const ConvShape& s) {
  if (s.out_plane() % kBlockCols<T> == 0) return 1;
  return images_per_group(s, 4 * kBlockCols<T> + s.out_plane() / 2);
}

// Elements of the images of a group with their zero border, if there is one.
int64_t padded_size(const ConvPlan& plan) { return plan.padded() ? plan.group() * plan.padded_image() : 0; }

// Returns the images of group `g` with their zero border. They are copied to `padded` only if there is a border.
template <class T>
const T* group_input(const ConvPlan& plan, const ConvShape& s, const T* x, int64_t g, T* padded) {
  const T* from = x + g * plan.group() * s.ic * s.in_plane();
  if (!plan.padded()) return from;
  plan.pad(from, plan.images_of(g), padded);
  return padded;
}

// Splits columns q0 .. q0 + cols of a [images][oc][plane] array into pieces that lie in one image each.
template <class F>
void for_pieces(const ConvShape& s, int64_t q0, int64_t cols, F piece) {
  const int64_t plane = s.out_plane();
  for (int64_t done = 0; done < cols;) {
    const int64_t image = (q0 + done) / plane, at = (q0 + done) % plane;
    const int64_t len = std::min(plane - at, cols - done);
    piece(image * s.oc * plane + at, done, len);
    done += len;
  }
}

template <class T>
void copy_rows(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t len) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, len, to + r * to_stride);
}

// Packs columns of `rows` output channels as a block. Columns past `cols` are zero.
template <class T>
void gather_block(const ConvShape& s, const T* dy, int64_t q0, int64_t cols, int64_t rows, T* block) {
  if (cols < kBlockCols<T>) std::fill_n(block, rows * kBlockCols<T>, T(0));
  for_pieces(s, q0, cols, [&](int64_t at, int64_t col, int64_t len) {
    copy_rows(dy + at, s.out_plane(), block + col, kBlockCols<T>, rows, len);
  });
}

// One direct convolution: its shape, its plan and the sizes derived from them.
template <class T>
struct Direct {
  const ConvShape s;
  ConvPlan plan;
  int64_t icg, ocg, depth, plane;

  Direct(const ConvShape& shape, int64_t group)
      : s(shape),
        plan(shape, kBlockCols<T>, group),
        icg(s.ic / s.groups),
        ocg(s.oc / s.groups),
        depth(plan.depth()),
        plane(s.out_plane()) {}

  int64_t block_cols(int64_t group, int64_t block) const {
    return std::min(kBlockCols<T>, plan.images_of(group) * plane - block * kBlockCols<T>);
  }
  int64_t input_offset(int64_t conv_group) const { return conv_group * icg * plan.padded_plane(); }

  void forward_block(const T* input, int64_t group, int64_t block, const T* w, const T* bias, bool relu, T* y) const {
    const int64_t cols = block_cols(group, block), q0 = block * kBlockCols<T>;
    const bool one_image = q0 / plane == (q0 + cols - 1) / plane;
    const Scratch<T> panel_memory(depth * kBlockCols<T> + kBlockSlack<T>);
    T* const panel = panel_memory;
    const Scratch<T> tile_memory(one_image ? 0 : ocg * kBlockCols<T>);
    T* const tile = tile_memory;
    for (int64_t g = 0; g < s.groups; ++g) {
      block_pack(plan.runs(plan.blocks_of(group), block), input + input_offset(g), plan.offsets(), depth, panel);
      T* out = y + (group * plan.group() * s.oc + g * ocg) * plane;
      const T* b = bias ? bias + g * ocg : nullptr;
      const T* wg = w + g * ocg * depth;
      if (one_image) {
        T* at = out + q0 / plane * s.oc * plane + q0 % plane;
        block_multiply(ocg, cols, depth, wg, depth, int64_t(1), panel, kBlockCols<T>, b, relu, at, plane);
        continue;
      }
      block_multiply(ocg, cols, depth, wg, depth, int64_t(1), panel, kBlockCols<T>, b, relu, tile, kBlockCols<T>);
      for_pieces(s, q0, cols, [&](int64_t at, int64_t col, int64_t len) {
        copy_rows(tile + col, kBlockCols<T>, out + at, plane, ocg, len);
      });
    }
  }

  // Adds the block's contribution to the (padded) input gradient.
  void data_block(const T* dy, int64_t group, int64_t block, const T* w, T* dx) const {
    const int64_t cols = block_cols(group, block), q0 = block * kBlockCols<T>;
    const Scratch<T> panel_memory(depth * kBlockCols<T> + kBlockSlack<T>);
    T* const panel = panel_memory;
    const Scratch<T> grad_memory(ocg * kBlockCols<T>);
    T* const grad = grad_memory;
    for (int64_t g = 0; g < s.groups; ++g) {
      const T* from = dy + (group * plan.group() * s.oc + g * ocg) * plane;
      gather_block(s, from, q0, cols, ocg, grad);
      block_multiply(depth, cols, ocg, w + g * ocg * depth, int64_t(1), depth, grad, kBlockCols<T>,
                     static_cast<const T*>(nullptr), false, panel, kBlockCols<T>);
      block_unpack_add(plan.runs(plan.blocks_of(group), block), panel, plan.offsets(), depth, dx + input_offset(g));
    }
  }

  // Adds the contribution of blocks [first, last) of one group to dw.
  void weight_blocks(const T* input, const T* dy, int64_t group, int64_t first, int64_t last, T* dw) const {
    const int64_t count = last - first, panel_size = depth * kBlockCols<T>;
    const Scratch<T> panel_memory(count * panel_size + kBlockSlack<T>);
    T* const panel = panel_memory;
    const Scratch<T> grad_memory(count * ocg * kBlockCols<T>);
    T* const grad = grad_memory;
    for (int64_t g = 0; g < s.groups; ++g) {
      const T* from = dy + (group * plan.group() * s.oc + g * ocg) * plane;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t cols = block_cols(group, first + i);
        T* out = panel + i * panel_size;
        if (cols < kBlockCols<T>) std::fill_n(out, panel_size, T(0));
        block_pack(plan.runs(plan.blocks_of(group), first + i), input + input_offset(g), plan.offsets(), depth, out);
        if (cols < kBlockCols<T>) clear_tail(out, cols);
        gather_block(s, from, (first + i) * kBlockCols<T>, cols, ocg, grad + i * ocg * kBlockCols<T>);
      }
      block_dot_add(ocg, depth, count, grad, panel, dw + g * ocg * depth, depth);
    }
  }

  // Clears the columns past `cols`: packing leaves unspecified values there, and 0 * NaN is not 0.
  void clear_tail(T* panel, int64_t cols) const {
    for (int64_t r = 0; r < depth; ++r)
      std::fill(panel + r * kBlockCols<T> + cols, panel + (r + 1) * kBlockCols<T>, T(0));
  }
};

template <class T>
void direct_forward(const Direct<T>& conv, const T* x, const T* w, const T* bias, bool relu, T* y) {
  const ConvShape& s = conv.s;
  const int64_t per_group = conv.plan.blocks_of(0).blocks();
  const int64_t macs = kBlockCols<T> * conv.depth * s.oc;
  parallel_for(conv.plan.groups() * per_group, std::max<int64_t>(1, kMacsPerTask / macs),
               [&](int64_t begin, int64_t end) {
                 const Scratch<T> padded(padded_size(conv.plan));
                 int64_t current = -1;
                 const T* input = nullptr;
                 for (int64_t u = begin; u < end; ++u) {
                   const int64_t group = u / per_group, block = u % per_group;
                   if (block >= conv.plan.blocks_of(group).blocks()) continue;
                   if (group != current) input = group_input<T>(conv.plan, s, x, group, padded);
                   current = group;
                   conv.forward_block(input, group, block, w, bias, relu, y);
                 }
               });
}

template <class T>
void direct_backward_data(const Direct<T>& conv, const T* dy, const T* w, T* dx) {
  const ConvShape& s = conv.s;
  const ConvPlan& plan = conv.plan;
  const int64_t macs = s.macs() / s.n * plan.group();
  parallel_for(plan.groups(), std::max<int64_t>(1, kMacsPerTask / std::max<int64_t>(1, macs)),
               [&](int64_t begin, int64_t end) {
                 const Scratch<T> padded(padded_size(plan));
                 Poller poll;
                 for (int64_t group = begin; group < end; ++group) {
                   const int64_t images = plan.images_of(group);
                   T* out = dx + group * plan.group() * s.ic * s.in_plane();
                   T* sum = plan.padded() ? padded.get() : out;
                   std::fill_n(sum, images * plan.padded_image(), T(0));
                   const int64_t blocks = plan.blocks_of(group).blocks();
                   for (int64_t block = 0; block < blocks; ++block, poll(macs / blocks))
                     conv.data_block(dy, group, block, w, sum);
                   if (plan.padded()) plan.crop(sum, images, out);
                 }
               });
}

// The number of blocks per product: enough columns to hide the horizontal sums at the end of a product, and few enough
// for the second-level cache.
constexpr int64_t kWeightBlocks = 8;
constexpr int64_t kWeightPanelBytes = 384 << 10;

template <class T>
int64_t weights_group(const ConvShape& s) {
  return images_per_group(s, kWeightBlocks * kBlockCols<T>);
}

template <class T>
void direct_backward_weights(const Direct<T>& conv, const T* x, const T* dy, T* dw) {
  const ConvShape& s = conv.s;
  const ConvPlan& plan = conv.plan;
  const int64_t block_bytes = (conv.depth + conv.ocg) * 256;
  const int64_t step = std::clamp<int64_t>(kWeightPanelBytes / block_bytes, 1, kWeightBlocks);
  const int64_t size = s.oc * conv.depth;
  const int64_t parts = std::clamp<int64_t>(s.macs() / kMacsPerTask, 1, weight_parts(size, plan.groups()));
  const Scratch<T> partial_memory((parts - 1) * size);
  T* const partial = partial_memory;
  parallel_parts(parts, [&](int64_t begin, int64_t end) {
    const Scratch<T> padded(padded_size(plan));
    for (int64_t part = begin; part < end; ++part) {
      T* sum = part == 0 ? dw : partial + (part - 1) * size;
      std::fill_n(sum, size, T(0));
      for (int64_t group = part * plan.groups() / parts; group < (part + 1) * plan.groups() / parts; ++group) {
        const T* input = group_input<T>(plan, s, x, group, padded);
        const int64_t blocks = plan.blocks_of(group).blocks();
        for (int64_t b = 0; b < blocks; b += step, poll_kernel())
          conv.weight_blocks(input, dy, group, b, std::min(blocks, b + step), sum);
      }
    }
  });
  add_parts(dw, partial, parts, size);
}

}  // namespace

template <class T>
void conv_forward(const ConvShape& s, const T* x, const T* w, const T* bias, bool relu, T* y) {
  if (is_empty(s)) return fill_rows(s, bias, relu, y);
  if constexpr (std::is_same_v<T, float>)
    if (large_forward(s, x, w, bias, relu, y)) return;
  direct_forward(Direct<T>(s, forward_group<T>(s)), x, w, bias, relu, y);
}

template <class T>
void conv_backward_data(const ConvShape& s, const T* dy, const T* w, T* dx) {
  if (is_empty(s)) {
    std::fill_n(dx, s.n * s.ic * s.in_plane(), T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>)
    if (large_backward_data(s, dy, w, dx)) return;
  direct_backward_data(Direct<T>(s, forward_group<T>(s)), dy, w, dx);
}

template <class T>
void conv_backward_weights(const ConvShape& s, const T* x, const T* dy, T* dw) {
  if (is_empty(s)) {
    std::fill_n(dw, s.oc * (s.ic / s.groups) * s.taps(), T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>)
    if (large_backward_weights(s, x, dy, dw)) return;
  direct_backward_weights(Direct<T>(s, weights_group<T>(s)), x, dy, dw);
}

struct DirectConv::State {
  ConvPart part;
  Direct<float> conv;
};

DirectConv::DirectConv(std::unique_ptr<const State> state) : state_(std::move(state)) {}
DirectConv::DirectConv(DirectConv&&) noexcept = default;
DirectConv::~DirectConv() = default;

std::optional<DirectConv> DirectConv::make(const ConvShape& s, ConvPart part) {
  if (is_empty(s) || prefers_large(s, part)) return std::nullopt;
  const int64_t group = part == ConvPart::kWeightGradient ? weights_group<float>(s) : forward_group<float>(s);
  return DirectConv(std::unique_ptr<const State>(new State{part, Direct<float>(s, group)}));
}

void DirectConv::run(const float* a, const float* b, const float* bias, bool relu, float* out) const {
  switch (state_->part) {
    case ConvPart::kForward:
      return direct_forward(state_->conv, a, b, bias, relu, out);
    case ConvPart::kInputGradient:
      return direct_backward_data(state_->conv, a, b, out);
    case ConvPart::kWeightGradient:
      return direct_backward_weights(state_->conv, a, b, out);
  }
}

#define PG_CONV(T)                                                                         \
  template void conv_forward<T>(const ConvShape&, const T*, const T*, const T*, bool, T*); \
  template void conv_backward_data<T>(const ConvShape&, const T*, const T*, T*);           \
  template void conv_backward_weights<T>(const ConvShape&, const T*, const T*, T*);
PG_CONV(float)
PG_CONV(double)
#undef PG_CONV

}  // namespace pg::cpu
