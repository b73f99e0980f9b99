#include "tensor/cuda/launch.h"

#include <algorithm>

#include "tensor/cuda/capture.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/memory.h"
#include "tensor/error.h"
#include "tensor/settings.h"

namespace pg::cuda {
namespace {

constexpr int64_t kMaxBlocks = INT32_MAX;
constexpr int64_t kBlocksPerMultiprocessor = 16;

}  // namespace

bool waits_each() {
  static const bool on = switched_on("PERIGEE_CUDA_SYNC");
  return on;
}

void launch_blocks(Stream& stream, CUfunction kernel, int64_t blocks, unsigned threads, const void* argument) {
  if (blocks == 0) return;
  if (blocks > kMaxBlocks) throw Error("cuda: a kernel needs too many blocks");
  void* arguments[] = {const_cast<void*>(argument)};
  driver().cuLaunchKernel(kernel, unsigned(blocks), 1, 1, threads, 1, 1, 0, stream.handle, arguments, nullptr);
  if (waits_each() && !stream.capture) stream.wait();
}

void launch(Stream& stream, CUfunction kernel, int64_t count, const void* argument) {
  const int64_t most = stream.gpu.multiprocessors * kBlocksPerMultiprocessor;
  launch_blocks(stream, kernel, std::min((count + kThreads - 1) / kThreads, most), kThreads, argument);
}

const char* type_text(DType t) {
  constexpr const char* kNames[kDTypeCount] = {"bool", "uint8_t",  "int8_t", "int32_t", "int64_t",
                                               "Half", "BFloat16", "float",  "double"};
  return kNames[int(t)];
}

DType moved(DType t) {
  constexpr DType kBySize[] = {DType::kUInt8, DType::kFloat16, DType::kInt32, DType::kInt64};
  return kBySize[size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3];
}

CUfunction family_kernel(Stream& stream, const char* family, const std::string& types, const char* name) {
  return stream.gpu.modules->kernel(fmt::format("{}:{}", family, types), name,
                                    [&] { return family_source(family, types); });
}

void read_back(Stream& stream, void* to_host, const void* from, size_t bytes) {
  if (stream.capture) throw Error("cuda: a program on the device cannot read values");
  driver().cuMemcpyDtoHAsync(to_host, reinterpret_cast<CUdeviceptr>(from), bytes, stream.handle);
  stream.wait();
}

CUfunction family_kernel(Stream& stream, const KernelKey& key, FunctionRef<std::string()> types) {
  return stream.gpu.modules->kernel(key, [&] { return family_kernel(stream, key.family, types(), key.name); });
}

Scratch::Scratch(Stream& stream, size_t bytes)
    : stream_(stream),
      data_(stream.capture ? stream.capture->scratch.take(std::max<size_t>(bytes, 1))
                           : stream.gpu.memory->allocate(&stream, std::max<size_t>(bytes, 1))) {
  if (!data_) throw OutOfMemory(fmt::format("out of memory: a kernel needs {} bytes", bytes));
}

Scratch::~Scratch() {
  if (stream_.capture)
    stream_.capture->scratch.give(data_);
  else
    stream_.gpu.memory->release(&stream_, data_);
}

}  // namespace pg::cuda
