// Sorts by hand-written kernels (kernels/sort.cuh): tiles in shared memory, then merges of runs. A merge keeps no more
// items than the result has, so that a small topk of long lines moves little.
#include "tensor/cuda/sort.h"

#include <algorithm>
#include <optional>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/sort_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::kSortTile;
using kernels::SortArgs;
using kernels::SortRuns;

int64_t total(const SortRuns& runs) { return (runs.count - 1) * runs.length + runs.last; }

SortRuns tiles_of(int64_t n, int64_t keep) {
  const int64_t count = (n + kSortTile - 1) / kSortTile;
  return {count, std::min<int64_t>(kSortTile, keep), std::min(n - (count - 1) * kSortTile, keep)};
}

SortRuns merged(const SortRuns& runs, int64_t keep) {
  const int64_t last = runs.count % 2 ? runs.last : runs.length + runs.last;
  return {(runs.count + 1) / 2, std::min(2 * runs.length, keep), std::min(last, keep)};
}

// `lines`: their number.
void sort(Stream& stream, const std::string& form, DType t, SortArgs args, int64_t lines) {
  if (lines == 0 || args.keep == 0) return;
  const std::string types = sort_types(t, form.c_str());
  const auto kernel = [&](const char* name) { return family_kernel(stream, "sort", types, name); };
  args.merged = tiles_of(args.n, args.keep);
  const size_t bytes = size_t(lines * total(args.merged)) * (form == "kWide" ? 16 : 8);
  std::optional<Scratch> memory[2];
  unsigned threads = 32;
  while (threads < kThreads && int64_t(threads) * 2 < args.n) threads *= 2;
  if (args.merged.count > 1) args.to = memory[0].emplace(stream, bytes).data();
  launch_blocks(stream, kernel("sort_tiles"), lines * args.merged.count, threads, &args);
  if (args.merged.count == 1) return;
  void* other = memory[1].emplace(stream, bytes).data();
  while (args.merged.count > 1) {
    args.from = args.to;
    args.to = std::exchange(other, args.to);
    args.runs = args.merged;
    args.merged = merged(args.runs, args.keep);
    const int64_t tiles = (args.merged.length + kSortTile - 1) / kSortTile;
    launch_blocks(stream, kernel("merge_runs"), lines * args.merged.count * tiles, kThreads, &args);
  }
  args.from = args.to;
  launch(stream, kernel("store_lines"), lines * args.keep, &args);
}

SortArgs args_of(const void* x, const Lines& lines) {
  SortArgs args = {};
  args.x = x;
  args.outer = lines.outer, args.n = lines.n, args.inner = lines.inner;
  return args;
}

void order(const KernelArgs& a, bool descending, int64_t keep, const View* values, const View& indices) {
  const View& x = a.in[0];
  const Lines lines(x.shape(), x.rank() ? a.dim("dim", x.rank()) : 0);
  sort_lines(stream_at(a.stream), x.data, x.dtype(), lines, descending, std::min(keep, lines.n),
             a.attr<int64_t>("index_base"), {values ? values->data : nullptr, indices.data});
}

void sort_row(const KernelArgs& a) { order(a, a.attr<bool>("descending"), INT64_MAX, &a.out[0], a.out[1]); }
void argsort(const KernelArgs& a) { order(a, a.attr<bool>("descending"), INT64_MAX, nullptr, a.out[0]); }
void topk(const KernelArgs& a) { order(a, a.attr<bool>("largest"), a.attr<int64_t>("k"), &a.out[0], a.out[1]); }

}  // namespace

void sort_lines(Stream& stream, const void* x, DType t, const Lines& lines, bool descending, int64_t keep, int64_t base,
                SortResult to) {
  SortArgs args = args_of(x, lines);
  args.values = to.values;
  args.indices = to.indices;
  args.keep = keep, args.base = base;
  args.descending = descending;
  const bool packed = size_of(t) <= 4 && lines.n < int64_t(UINT32_MAX);
  sort(stream, packed ? "kPacked" : "kWide", t, args, lines.count());
}

void sort_slices(Stream& stream, const void* x, DType t, const Lines& lines, void* indices) {
  SortArgs args = args_of(x, lines);
  args.indices = indices;
  args.keep = lines.n;
  sort(stream, "kSlices", t, args, 1);
}

std::string sort_types(DType t, const char* form) {
  return fmt::format("using T = {};\n#define kForm {}\n", type_text(t), form);
}

std::vector<KernelRow> sort_rows() { return {{"sort", sort_row}, {"argsort", argsort}, {"topk", topk}}; }

}  // namespace pg::cuda
