// Ops on batches of sequences by hand-written kernels (kernels/sequence.cuh). A length that is not allowed is reported
// late.
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/sequence_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

// `whole`: the array with all steps. `least`: of the lengths.
void run(const KernelArgs& a, const char* name, const View& whole, int time, int64_t least) {
  const View &out = a.out[0], &lengths = a.in[1];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  kernels::SequenceArgs args = {};
  args.x = a.in[0].data;
  args.lengths = lengths ? lengths.data : nullptr;
  args.out = out.data;
  args.count = out.numel();
  args.steps = whole.size(time), args.batch = whole.size(1 - time);
  args.rest = 1;
  for (int d = 2; d < whole.rank(); ++d) args.rest *= whole.size(d);
  args.least = least;
  args.time_first = time == 0;
  if (a.op.attr_index("value") >= 0) args.value = a.attr<double>("value");
  args.report = report_number(refusal(a, "lengths", fmt::format("whole numbers from {} to {}", least, args.steps),
                                      "{number} at position {at}"));
  args.fault = stream.fault->get();
  const std::string types = sequence_types(out.dtype(), lengths ? lengths.dtype() : DType::kInt64);
  launch(stream, family_kernel(stream, "sequence", types, name), args.count, &args);
}

int time_dim(const KernelArgs& a) { return a.dim("dim", a.in[0].rank()); }

void sequence_mask(const KernelArgs& a) { run(a, "sequence_mask", a.in[0], time_dim(a), 0); }
void sequence_reverse(const KernelArgs& a) { run(a, "sequence_reverse", a.in[0], time_dim(a), 0); }
void sequence_last(const KernelArgs& a) { run(a, "sequence_last", a.in[0], time_dim(a), 1); }
void sequence_last_backward(const KernelArgs& a) {
  run(a, "sequence_last_backward", a.out[0], int(a.attr<int64_t>("dim")) - 1, 1);
}

}  // namespace

std::string sequence_types(DType t, DType length) {
  return fmt::format("using T = {};\nusing L = {};\n", type_text(t), type_text(length));
}

std::vector<KernelRow> sequence_rows() {
  return {{"sequence_mask", sequence_mask},
          {"sequence_reverse", sequence_reverse},
          {"sequence_last", sequence_last},
          {"sequence_last_backward", sequence_last_backward}};
}

}  // namespace pg::cuda
