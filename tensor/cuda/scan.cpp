// Running reductions by hand-written kernels (kernels/scan.cuh).
#include "tensor/cuda/scan.h"

#include <algorithm>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/scan_arguments.cuh"
#include "tensor/cuda/lines.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::ScanArgs;

constexpr int64_t kShortLine = 64;    // elements that one thread visits
constexpr int64_t kManyLines = 4096;  // lines that keep the device busy with one thread each
constexpr int64_t kPart = 16 << 10;   // elements of a part, when there are few lines

ScanArgs args_of(const Lines& lines, const void* x, void* out) {
  ScanArgs args = {};
  args.x = x;
  args.out = out;
  args.outer = lines.outer, args.n = lines.n, args.inner = lines.inner;
  args.parts = 1;
  args.length = lines.n;
  return args;
}

void scan(Stream& stream, const std::string& types, ScanArgs args) {
  const int64_t lines = args.outer * args.inner;
  if (lines == 0 || args.n == 0) return;
  const auto kernel = [&](const char* name) { return family_kernel(stream, "scan", types, name); };
  // Threads of neighboring lines read neighboring elements where inner is large.
  if (args.n <= kShortLine || (lines >= kManyLines && args.inner >= 32))
    return launch(stream, kernel("scan_threads"), lines, &args);
  unsigned threads = 32;
  while (threads < kThreads && int64_t(threads) * kernels::kScanItems < args.n) threads *= 2;
  const int64_t most = std::max<int64_t>(4 * stream.gpu.multiprocessors / lines, 1);
  const int64_t parts = std::clamp<int64_t>(args.n / kPart, 1, most);
  args.length = (args.n + parts - 1) / parts;
  args.parts = (args.n + args.length - 1) / args.length;
  if (args.parts == 1) return launch_blocks(stream, kernel("scan_parts"), lines, threads, &args);
  const Scratch states(stream, size_t(lines * args.parts * kernels::kScanStateBytes));
  args.states = states.data();
  launch_blocks(stream, kernel("scan_totals"), lines * args.parts, kThreads, &args);
  launch_blocks(stream, kernel("scan_states"), lines, kThreads, &args);
  launch_blocks(stream, kernel("scan_parts"), lines * args.parts, kThreads, &args);
}

Lines lines_of(const KernelArgs& a) { return Lines(a.in[0].shape(), a.dim("dim", a.in[0].rank())); }

template <bool kProduct>
void running(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  ScanArgs args = args_of(lines_of(a), in.data, out.data);
  args.reverse = a.attr<bool>("reverse");
  scan(stream_at(a.stream), scan_types(in.dtype(), out.dtype(), kProduct ? "kProd" : "kSum"), args);
}

template <bool kMax>
void running_extreme(const KernelArgs& a) {
  const View& in = a.in[0];
  ScanArgs args = args_of(lines_of(a), in.data, a.out[0].data);
  args.indices = a.out[1].data;
  args.base = a.attr<int64_t>("index_base");
  scan(stream_at(a.stream), scan_types(in.dtype(), in.dtype(), kMax ? "kMax" : "kMin"), args);
}

void scan_affine(const KernelArgs& a) {
  ScanArgs args = args_of(lines_of(a), a.in[1].data, a.out[0].data);
  args.factors = a.in[0].data;
  args.reverse = a.attr<bool>("reverse");
  args.lag = int32_t(a.attr<int64_t>("lag"));
  scan(stream_at(a.stream), scan_types(a.in[0].dtype(), a.out[0].dtype(), "kAffine"), args);
}

}  // namespace

Ranks::Ranks(Stream& stream, const void* mask, int64_t count)
    : stream_(stream),
      count_(count),
      dtype_(count <= INT32_MAX ? DType::kInt32 : DType::kInt64),
      memory_(stream, size_t(count * size_of(dtype_))) {
  scan(stream, scan_types(DType::kBool, dtype_, "kSum"), args_of(Lines({count}, 0), mask, memory_.data()));
}

int64_t Ranks::total() const {
  if (count_ == 0) return 0;
  const int size = size_of(dtype_);
  int64_t last = 0;  // the low bytes of the number come first
  read_back(stream_, &last, static_cast<const char*>(data()) + (count_ - 1) * size, size_t(size));
  return last;
}

void running_sums(Stream& stream, const View& in, const View& out) {
  scan(stream, scan_types(in.dtype(), out.dtype(), "kSum"),
       args_of(Lines(in.shape(), in.rank() - 1), in.data, out.data));
}

std::string scan_types(DType from, DType to, const char* op) {
  return fmt::format("using T = {};\nusing Out = {};\n#define kOp {}\n", type_text(from), type_text(to), op);
}

std::vector<KernelRow> scan_rows() {
  return {{"cumsum", running<false>},
          {"cumprod", running<true>},
          {"cummax", running_extreme<true>},
          {"cummin", running_extreme<false>},
          {"scan_affine", scan_affine}};
}

}  // namespace pg::cuda
