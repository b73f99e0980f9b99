#include "tensor/cuda/body.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "tensor/cuda/compiler.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/reduction.h"
#include "tensor/op.h"

namespace pg::cuda {

void Body::run(Stream& stream, const Dims& space, const Call& given) const {
  const bool reduces = !tiles().reductions.empty();
  CudaCall call(body_, space, given.in, given.out.first(given.out.size() - reduces), given.host, given.numbers);
  if (reduces) return reduce(stream, call, given.out.back());
  if (call.elements() == 0) return;
  const CUfunction found = kernel(stream.gpu, call.form(), "fused", [&] { return call.kernel("fused"); });
  if (body_.refuses) set_fault(stream, given, call);
  launch(stream, found, call.groups(), call.words().data());
}

// The totals of the values that the body computes. The argument of a kernel is that of a reduction before the words.
void Body::reduce(Stream& stream, const CudaCall& call, const View& out) const {
  const TileReduction& r = tiles().reductions.front();
  const Reduction how = reduction_of(r.op->name, r.row);
  if (out.numel() == 0) return;
  if (call.elements() == 0) return fill_view(stream, out, neutral(how));
  constexpr size_t kHead = sizeof(kernels::ReduceArgs) / sizeof(int64_t);
  static_assert(sizeof(kernels::ReduceArgs) % sizeof(int64_t) == 0);
  std::vector<int64_t> argument(kHead);
  argument.insert(argument.end(), call.words().begin(), call.words().end());
  auto& args = *new (argument.data()) kernels::ReduceArgs{};
  args.to = out.data;
  args.count = r.row;
  args.outputs = call.elements() / r.row;
  args.factor = how.factor;
  launch_reduction(stream, args, [&](const char* name) {
    return kernel(stream.gpu, call.form(), name, [&] {
      const std::string types = reduce_types(tiles().values[size_t(r.value)].dtype, r.dtype, how.op, how.finish) +
                                fmt::format("#define kFusedWords {}\n{}", call.words().size(), call.element());
      return family_source("reduce", types);
    });
  });
}

void Body::set_fault(Stream& stream, const Call& given, CudaCall& call) const {
  for (const TileValue& v : tiles().values) {
    if (v.kind != TileValue::Kind::kOp || !v.op->has(kRefuses) || !is_integer(v.compute)) continue;
    Refusal r;
    r.op = v.op;
    r.input = 1;
    r.place = given.place;
    r.argument = v.op->inputs[1].name;
    r.kind = std::string_view(v.op->name) == "pow" ? Refusal::Kind::kExponent : Refusal::Kind::kDivisor;
    if (given.in.size() > 1) r.shape = given.in[1].shape();
    call.set_fault(int64_t(reinterpret_cast<intptr_t>(stream.fault->get())), report_number(r));
    return;
  }
}

CUfunction Body::kernel(Gpu& gpu, const std::string& form, const char* name, FunctionRef<std::string()> source) const {
  {
    const std::lock_guard hold(lock_);
    for (const Known& k : known_)
      if (k.gpu == &gpu && k.name == name && k.form == form) return k.kernel;
  }
  const CUfunction made = gpu.modules->kernel(body_.key() + form, name, [&] { return source(); });
  const std::lock_guard hold(lock_);
  known_.push_back({&gpu, name, form, made});
  return made;
}

}  // namespace pg::cuda
