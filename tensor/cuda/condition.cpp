#include "tensor/cuda/condition.h"

#include <algorithm>
#include <bit>

#include "tensor/cuda/kernels/loop_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"

namespace pg::cuda {
namespace {

#if CUDA_VERSION >= 12040  // of the toolkit
constexpr int kOldestDriver = 12040;

// Functions that older drivers lack.
struct ConditionCalls {
  Function<decltype(::cuGraphAddNode_v2), check_driver> add_node;
  Function<decltype(::cuGraphConditionalHandleCreate), check_driver> create_handle;
  ConditionCalls() {
    add_node.bind(driver().library, "cuGraphAddNode_v2");
    create_handle.bind(driver().library, "cuGraphConditionalHandleCreate");
  }
};
const ConditionCalls& calls() {
  static const ConditionCalls instance;
  return instance;
}

// Only a kernel can set the value of a condition, by a function that the driver adds when it loads PTX. NVRTC would
// leave it open in a finished module. The argument is a SetArgs.
constexpr std::string_view kSetCondition = R"PTX(
.version 6.4
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_condition(.param .align 8 .b8 arguments[24])
{
  .reg .pred %differs;
  .reg .b16 %flag;
  .reg .b32 %value, %inverse;
  .reg .b64 %handle, %at;
  ld.param.u64 %handle, [arguments];
  ld.param.u64 %at, [arguments + 8];
  ld.param.u32 %inverse, [arguments + 16];
  cvta.to.global.u64 %at, %at;
  ld.global.u8 %flag, [%at];
  setp.ne.u16 %differs, %flag, 0;
  selp.u32 %value, 1, 0, %differs;
  xor.b32 %value, %value, %inverse;
  {
    .param .b64 first;
    .param .b32 second;
    st.param.b64 [first], %handle;
    st.param.b32 [second], %value;
    call.uni cudaGraphSetConditional, (first, second);
  }
  ret;
}

)PTX";
struct SetArgs {
  CUgraphConditionalHandle handle;
  const void* flag;
  uint32_t inverse;
};

void add_node(Chain& chain, CUgraphNodeParams& params) {
  CUgraphNode node = nullptr;
  calls().add_node(&node, chain.graph, &chain.last, nullptr, chain.last ? 1 : 0, &params);
  chain.last = node;
}

void add_set(Gpu& gpu, Chain& chain, const SetArgs& args) {
  void* arguments[] = {const_cast<SetArgs*>(&args)};
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = gpu.modules->kernel_of_text(kSetCondition, "set_condition");
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = arguments;
  add_node(chain, params);
}

#endif

// The largest number of bytes, up to 8, that all of the addresses and sizes are multiples of.
int64_t common_word(uint64_t bits) { return int64_t(1) << std::min(std::countr_zero(bits), 3); }

void copy_row(void* stream, const kernels::RowArgs& args) {
  Stream& s = stream_at(stream);
  const auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  const int64_t word = common_word(bits(args.to) | bits(args.from) | uint64_t(args.count));
  kernels::RowArgs words = args;
  words.count /= word;
  launch(s, family_kernel(s, "loop", join_types(word), "loop_row"), words.count, &words);
}

}  // namespace

#if CUDA_VERSION >= 12040
std::string_view condition_text() { return kSetCondition; }

bool has_conditional_nodes() {
  int version = 0;
  driver().cuDriverGetVersion(&version);
  return version >= kOldestDriver;
}

void add_condition(Gpu& gpu, Chain& chain, When when, const void* flag, FunctionRef<void(Chain& body)> fill) {
  SetArgs set = {0, flag, when == When::kUnless};
  calls().create_handle(&set.handle, chain.graph, gpu.context, 0, 0);
  add_set(gpu, chain, set);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = set.handle;
  params.conditional.type = when == When::kWhile ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  params.conditional.ctx = gpu.context;
  add_node(chain, params);
  Chain body{params.conditional.phGraph_out[0]};
  fill(body);
  if (when == When::kWhile) add_set(gpu, body, set);
}
#else
std::string_view condition_text() { return ""; }
bool has_conditional_nodes() { return false; }
void add_condition(Gpu&, Chain&, When, const void*, FunctionRef<void(Chain&)>) {
  throw Error("cuda: this build has no conditional nodes; they need a toolkit of version 12.4 or later");
}
#endif

void next_step(int index, void* stream, const LoopState& loop, bool first) {
  gpu(index);
  Stream& s = stream_at(stream);
  const kernels::LoopArgs args = {loop.steps, loop.number, loop.more,    loop.count,
                                  loop.flag,  loop.limit,  loop.reverse, first};
  launch_blocks(s, family_kernel(s, "loop", join_types(4), "loop_next"), 1, 1, &args);
}

void read_row(int index, void* stream, void* to, const void* rows, size_t bytes, const int64_t* number) {
  gpu(index);
  copy_row(stream, {to, rows, number, int64_t(bytes), false});
}

void write_row(int index, void* stream, void* rows, const void* from, size_t bytes, const int64_t* number) {
  gpu(index);
  copy_row(stream, {rows, from, number, int64_t(bytes), true});
}

}  // namespace pg::cuda
