// Kernels for batches of sequences of different lengths.
#include <cmath>
#include <cstring>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/index.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

// A (time, batch, rest) or (batch, time, rest) array. Each step has `bytes` bytes.
struct Batch {
  int64_t steps, count, bytes, time_step, batch_step;
  Batch(const View& whole, int time) {
    steps = whole.size(time);
    count = whole.size(1 - time);
    bytes = size_of(whole.dtype());
    for (int d = 2; d < whole.rank(); ++d) bytes *= whole.size(d);
    time_step = time == 0 ? count * bytes : bytes;
    batch_step = time == 0 ? bytes : steps * bytes;
  }
  int64_t at(int64_t t, int64_t b) const { return t * time_step + b * batch_step; }
};

// Returns the lengths of the sequences. Throws unless they are whole numbers from `least` to the number of steps.
WorkVector<int64_t> lengths_of(const KernelArgs& a, const Batch& batch, int64_t least) {
  WorkVector<int64_t> out(size_t(batch.count), batch.steps);
  const View& lengths = a.in[1];
  for (int64_t b = 0; lengths && b < batch.count; ++b) {
    const double v = load_number(lengths.dtype(), lengths.as<char>() + b * size_of(lengths.dtype()));
    if (!(v >= double(least) && v <= double(batch.steps)) || v != std::floor(v))
      bad_argument(a.op.name, "lengths", fmt::format("whole numbers from {} to {}", least, batch.steps),
                   fmt::format("{} at position {}", v, b + 1));
    out[size_t(b)] = int64_t(v);
  }
  return out;
}

void mask_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const Batch batch(x, a.dim("dim", x.rank()));
  const WorkVector<int64_t> lengths = lengths_of(a, batch, 0);
  if (out.numel() == 0) return;
  copy_strided(x, out.data);
  Poller poll;
  for (int64_t b = 0; b < batch.count; ++b)
    for (int64_t t = lengths[size_t(b)]; t < batch.steps; ++t) {
      poll(batch.bytes);
      fill_number(out.dtype(), out.as<char>() + batch.at(t, b), batch.bytes / size_of(out.dtype()),
                  a.attr<double>("value"));
    }
}

void last_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const Batch batch(x, a.dim("dim", x.rank()));
  const WorkVector<int64_t> lengths = lengths_of(a, batch, 1);
  if (out.numel() == 0) return;
  for (int64_t b = 0; b < batch.count; ++b)
    std::memcpy(out.as<char>() + b * batch.bytes, x.as<char>() + batch.at(lengths[size_t(b)] - 1, b),
                size_t(batch.bytes));
}

void last_backward_kernel(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  const Batch batch(out, int(a.attr<int64_t>("dim")) - 1);
  const WorkVector<int64_t> lengths = lengths_of(a, batch, 1);
  if (out.numel() == 0) return;
  zero_bytes(out.data, out.numel() * size_of(out.dtype()));
  for (int64_t b = 0; b < batch.count; ++b)
    std::memcpy(out.as<char>() + batch.at(lengths[size_t(b)] - 1, b), dy.as<char>() + b * batch.bytes,
                size_t(batch.bytes));
}

void reverse_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const Batch batch(x, a.dim("dim", x.rank()));
  const WorkVector<int64_t> lengths = lengths_of(a, batch, 0);
  if (out.numel() == 0) return;
  Poller poll;
  for (int64_t t = 0; t < batch.steps; ++t)
    for (int64_t b = 0; b < batch.count; ++b) {
      poll(batch.bytes);
      const int64_t n = lengths[size_t(b)], from = t < n ? n - 1 - t : t;
      std::memcpy(out.as<char>() + batch.at(t, b), x.as<char>() + batch.at(from, b), size_t(batch.bytes));
    }
}

}  // namespace

void add_sequence_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"sequence_mask", mask_kernel},
      {"sequence_last", last_kernel},
      {"sequence_last_backward", last_backward_kernel},
      {"sequence_reverse", reverse_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
